package outputhost

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/outputhost/sources"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// reader is the read stream of one share from one replica. It has no goroutine of its own: frames arrive on the link's.
type reader struct {
	g       *group
	s       *share
	mux     *ws.Mux
	stream  uint32
	stopped atomic.Bool

	// the group's mutex's
	store   core.HostID // "" until one was chosen
	told    bool        // how far the extent may be read …
	upTo    core.Seq    // … and this is it
	more    bool        // of a timer extent: messages are due for which there is no credit
	granted int         // bytes asked for and not sent yet
	heard   time.Time   // when the store sent something last, or the stream was opened
	probe   time.Duration
	probing bool
}

// firstProbe is how long a reader hears nothing before another store is asked how far the extent goes.
const firstProbe = 500 * time.Millisecond

// start opens the stream on a goroutine, as it may have to dial.
func (r *reader) start() {
	if !r.g.h.tasks.Go(r.open) {
		r.lost(core.Errorf(core.CodeDraining, "output host is stopping"))
	}
}

func (r *reader) open(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.g.h.cfg.CallTimeout)
	defer cancel()
	if err := r.connect(ctx); err != nil {
		r.lost(err)
	}
}

// connect asks a store for everything from the first seq that is missing; of a timer extent for all that is neither
// done nor held.
func (r *reader) connect(ctx context.Context) error {
	s := r.s
	host, alone, err := r.choose(ctx)
	if err != nil {
		return err
	}
	if !alone {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, openTimeout)
		defer cancel()
	}
	mux, err := r.g.h.deps.Peers.Link(ctx, host.Address, "/v1/store")
	if err != nil {
		return err
	}
	r.g.mu.Lock()
	from := s.rules.ReadFrom()
	credit := min(s.rules.ReadCredit(), r.g.h.readAhead(), r.g.h.memory.Room(s.rules.HeldBatches()))
	known := s.knownLocked()
	r.g.mu.Unlock()
	body, err := proto.Marshal(&pb.OpenRead{Extent: convert.ExtentToProto(s.extent), From: uint64(from), Credit: uint64(credit), Known: known})
	if err != nil {
		return core.Errorf(core.CodeInternal, "encode open: %w", err)
	}
	stream, err := mux.Open(r)
	if err != nil {
		return err
	}
	r.g.mu.Lock()
	stopped := r.stopped.Load()
	if !stopped {
		r.mux, r.stream, r.granted, r.heard, r.probe = mux, stream, credit, r.g.h.deps.Now(), firstProbe
		r.g.h.readers.Add(1)
		r.g.touchLocked(s)
	}
	r.g.mu.Unlock()
	if stopped {
		mux.Forget(stream)
		return nil
	}
	if err := mux.Conn.Send(ctx, wire.AppendFrame(nil, wire.TypeOpenRead, stream, body)); err != nil {
		return err
	}
	if r.stopped.Load() { // the close may have gone out before the open
		mux.Conn.Post(wire.AppendFrame(nil, wire.TypeCloseRead, stream, nil))
	}
	return nil
}

// openTimeout bounds the wait for a connection to a store while there is another one to ask.
const openTimeout = time.Second

// choose picks the store to read from.
func (r *reader) choose(ctx context.Context) (at membership.Host, alone bool, err error) {
	g, s := r.g, r.s
	now := g.h.deps.Now()
	g.mu.Lock()
	look := s.misses > 0 && g.h.elapsed(now)-s.lookedAt >= lookEvery
	if look {
		s.lookedAt = g.h.elapsed(now)
	}
	g.mu.Unlock()
	if look {
		lctx, cancel := context.WithTimeout(ctx, openTimeout)
		if err := g.look(lctx, s); err != nil { // the stores that are known will do
			g.h.log.Debug("cannot read the seal row of an extent; the host asks the stores that it knows", "extent", s.extent.ID, "err", err)
		}
		cancel()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.retired {
		return membership.Host{}, true, core.Errorf(core.CodeNotFound, "extent %s was retired", s.extent.ID)
	}
	from := s.sourcesLocked(now)
	if len(from) == 0 {
		return membership.Host{}, true, core.Errorf(core.CodeUnavailable, "no store of extent %s is there", s.extent.ID)
	}
	r.store = from[0].ID
	return from[0], len(from) == 1, nil
}

// silent reports whether the error is about the store as a whole.
func silent(err error) bool {
	switch core.CodeOf(err) {
	case core.CodeUnavailable, core.CodeDraining, core.CodeDeadline:
		return true
	}
	return false
}

// failed notes that reading from the store failed, and says how long to wait before the next one is asked.
func (r *reader) failed(err error, now time.Time) time.Duration {
	s := r.s
	if r.store != "" && silent(err) {
		r.g.h.sources.Shun(r.store, now)
	}
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	s.misses++
	r.g.touchLocked(s)
	s.trouble = err
	if r.store != "" {
		if s.failed == nil {
			s.failed = make(map[core.HostID]time.Time)
		}
		s.failed[r.store] = now.Add(sources.ShunFor)
	}
	stores := max(len(s.sourcesLocked(now)), 1)
	round := (int(s.misses) - 1) / stores // how often all of them have failed
	if int(s.misses)%stores != 0 {
		return 0
	}
	return min(readRetry<<min(round, 13), r.g.retryLocked())
}

// The pause after all stores of an extent have failed doubles with each round. It begins short: a share is often given
// out before its extent is open on the stores. When many extents cannot be read, it ends longer: together they ask no
// more than some ten times a second.
const (
	readRetry    = 2 * time.Millisecond
	maxReadRetry = time.Second
	longestRetry = 10 * time.Second
	retryShare   = 100 * time.Millisecond
)

// retryLocked is the longest pause.
func (g *group) retryLocked() time.Duration {
	failing := 0
	for _, s := range g.mu.shares {
		if s.failing() {
			failing++
		}
	}
	return min(max(maxReadRetry, time.Duration(failing)*retryShare), longestRetry)
}

// credit lets the store send more.
func (r *reader) credit(n int) {
	r.mux.Conn.Post(wire.AppendFrame(nil, wire.TypeReadCredit, r.stream, wire.AppendPosition(nil, uint64(n))))
}

// stop ends the stream; the share may be read again by another reader. A nil reader has none.
func (r *reader) stop() {
	if r != nil && r.end() {
		r.g.mu.Lock()
		r.leaveLocked()
		r.g.mu.Unlock()
	}
}

func stopAll(readers []*reader) {
	for _, r := range readers {
		r.stop()
	}
}

// leaveLocked lets the share have another reader.
func (r *reader) leaveLocked() {
	if r.s.reader == r {
		r.s.reader = nil
		r.g.touchLocked(r.s)
	}
}

// end takes the stream off its link and closes it, once: it reports whether it did. A stream that the store has ended
// does not mind.
func (r *reader) end() bool {
	if r.stopped.Swap(true) {
		return false
	}
	r.g.mu.Lock()
	mux := r.mux
	r.g.mu.Unlock()
	if mux != nil {
		mux.Forget(r.stream)
		r.g.h.readers.Add(-1)
		mux.Conn.Post(wire.AppendFrame(nil, wire.TypeCloseRead, r.stream, nil))
	}
	return true
}

// lost ends the stream and lets the group open another reader: of another store at once, after all have failed in a row
// after a pause.
func (r *reader) lost(err error) {
	if !r.end() {
		return
	}
	h := r.g.h
	pause := r.failed(err, h.deps.Now())
	level := slog.LevelInfo
	if core.CodeOf(err) == core.CodeNotFound && pause < maxReadRetry {
		level = slog.LevelDebug // the input host is about to open it there
	}
	h.log.Log(context.Background(), level, "a read stream was interrupted; the host opens another one", "extent", r.s.extent.ID, "group", r.g.name, "store", r.store, "err", err)
	h.metrics.readFailures.Inc()
	h.tasks.Go(func(ctx context.Context) {
		if pause > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
		r.g.mu.Lock()
		r.leaveLocked()
		r.g.mu.Unlock()
		r.g.pump()
	})
}

// Closed implements ws.StreamHandler.
func (r *reader) Closed(err error) { r.lost(err) }
