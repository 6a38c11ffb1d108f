package outputhost

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
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

// readersAtOnce is how many extents a group reads side by side, oldest first: a long backlog must not be read from all
// its ends. Extents that cannot be read just now, and extents that are read to their end so far, do not count: they
// must not hold up the others. So are timer extents: each of them may have what is due first.
const readersAtOnce = 8

// mergedAtOnce is how many of them may be of extents that were merged into the group.
const mergedAtOnce = readersAtOnce / 4

// readLocked decides what the group's readers should do and returns it as actions to take outside the mutex.
func (g *group) readLocked() (actions []func()) {
	wanted := g.wantedLocked()
	reading, merged := 0, 0
	for _, s := range g.orderedLocked() {
		if g.mu.closed || s.retired || s.finished() || s.exhausted() {
			continue
		}
		busy := !s.timers() && !s.failing() && !s.caughtUp()
		if busy && s.rules.IsMerged() {
			if merged++; merged > mergedAtOnce && s.reader == nil {
				continue
			}
		}
		if busy {
			reading++
		}
		if !s.timers() && reading > readersAtOnce && s.reader == nil {
			continue
		}
		r := s.reader
		needed := wanted || s.rules.Lacks() // without consumers what an earlier owner left under way is read, as it may become a dead letter
		switch {
		case r != nil && !needed:
			actions = append(actions, r.stop)
		case r == nil && needed && s.rules.WantsMore():
			s.reader = &reader{g: g, s: s}
			actions = append(actions, s.reader.start)
		case r != nil && r.mux != nil:
			ahead := g.h.readAhead()
			want := min(s.rules.ReadCredit(), ahead, g.h.memory.Room(s.rules.HeldBatches())) - r.granted
			if want >= ahead/4 || r.granted <= 0 && want > 0 {
				r.granted += want
				actions = append(actions, func() { r.credit(want) })
			}
		}
	}
	return actions
}

// orderedLocked are the group's shares, oldest extent first.
func (g *group) orderedLocked() []*share {
	if g.mu.ordered == nil {
		g.mu.ordered = slices.SortedFunc(maps.Values(g.mu.shares), compareShares)
	}
	return g.mu.ordered
}

// readAhead is what one share may have asked a store for: the host's memory for it, divided by the readers there are.
func (h *Host) readAhead() int {
	return min(h.cfg.ReadAhead, max(h.cfg.ReadMemory/max(int(h.readers.Load()), 1), minReadAhead))
}

const minReadAhead = 64 << 10

// failing: none of its stores could be read from the last time each was asked.
func (s *share) failing() bool { return s.misses >= max(len(s.extent.Replicas), len(s.holders)) }

// caughtUp: what may be read of an open extent was read.
func (s *share) caughtUp() bool {
	return s.reader != nil && s.reader.told && !s.end && s.rules.Unread(s.last) == 0
}

// exhausted: everything there is was read.
func (s *share) exhausted() bool { return s.end && s.rules.Unread(s.l) == 0 }

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

// connect asks a store for everything from the first seq that is missing; of a timer extent for all that is neither done nor held.
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

// credit lets the store send more.
func (r *reader) credit(n int) {
	b, at := wire.BeginFrame(make([]byte, 0, wire.FrameHeaderLen+8), wire.TypeReadCredit, 0, r.stream)
	b = wire.AppendPosition(b, uint64(n))
	wire.EndFrame(b, at)
	r.mux.Conn.Post(b)
}

// stop ends the stream; the share may be read again by another reader.
func (r *reader) stop() {
	mux, ended := r.end()
	if !ended {
		return
	}
	r.g.mu.Lock()
	if r.s.reader == r {
		r.s.reader = nil
	}
	r.g.mu.Unlock()
	if mux != nil {
		mux.Conn.Post(wire.AppendFrame(nil, wire.TypeCloseRead, r.stream, nil))
	}
}

// end takes the stream off its link, once; mux is nil when it was not open yet.
func (r *reader) end() (mux *ws.Mux, ended bool) {
	if r.stopped.Swap(true) {
		return nil, false
	}
	r.g.mu.Lock()
	mux = r.mux
	r.g.mu.Unlock()
	if mux != nil {
		mux.Forget(r.stream)
		r.g.h.readers.Add(-1)
	}
	return mux, true
}

// lost ends the stream and lets the group open another reader: of another store at once, after all have failed in a row after a pause.
func (r *reader) lost(err error) {
	mux, ended := r.end()
	if !ended {
		return
	}
	if mux != nil { // a stream that the store has ended does not mind
		mux.Conn.Post(wire.AppendFrame(nil, wire.TypeCloseRead, r.stream, nil))
	}
	h := r.g.h
	pause := r.failed(err, h.deps.Now())
	level := slog.LevelInfo
	if core.CodeOf(err) == core.CodeNotFound && pause < maxReadRetry {
		level = slog.LevelDebug // the input host is about to open it there
	}
	h.log.Log(context.Background(), level, "reading an extent was interrupted", "extent", r.s.extent.ID, "group", r.g.name, "store", r.store, "err", err)
	h.metrics.readFailures.Inc()
	h.tasks.Go(func(ctx context.Context) {
		if pause > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
		r.g.mu.Lock()
		if r.s.reader == r {
			r.s.reader = nil
		}
		r.g.mu.Unlock()
		r.g.pump()
	})
}

// Closed implements ws.StreamHandler.
func (r *reader) Closed(err error) { r.lost(err) }
