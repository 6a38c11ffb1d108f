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

// reading is what a share is to the group's readers.
type reading uint8

const (
	notRead    reading = iota // nothing of it is read any more, for now
	readBeside                // it is read whatever others are
	readBusy                  // it counts
)

// readingLocked is what the share is now.
func (s *share) readingLocked() reading {
	switch {
	case s.removed || s.retired || s.finished() || s.exhausted():
		return notRead
	case s.timers() || s.failing() || s.caughtUp():
		return readBeside
	}
	return readBusy
}

// readLocked decides what the readers of the shares that changed should do and returns it as actions to take outside
// the mutex. Readers of others are opened when the changes make room for them.
func (g *group) readLocked() (actions []func()) {
	if g.mu.closed {
		return nil
	}
	wanted := g.wantedLocked()
	if wanted != g.mu.wanted {
		g.mu.wanted = wanted
		for _, s := range g.mu.shares {
			g.touchLocked(s)
		}
	}
	room := g.mu.room
	g.mu.room = false
	for s := g.mu.touched; s != nil; s = s.nextTouched {
		room = g.countReadingLocked(s) || room
	}
	for s := g.mu.touched; s != nil; s = s.nextTouched {
		if action := g.readOnLocked(s); action != nil {
			actions = append(actions, action)
		}
	}
	if room && g.mu.unread > 0 {
		actions = g.openLocked(actions)
	}
	return actions
}

// neededLocked reports whether the share is to be read: without consumers only what an earlier owner left under way is,
// as it may become a dead letter.
func (s *share) neededLocked() bool { return s.group.mu.wanted || s.rules.Lacks() }

// countReadingLocked counts what the share is to the readers, and whether it waits for one. It reports whether some
// share may be given a reader after that.
func (g *group) countReadingLocked(s *share) (room bool) {
	is := s.readingLocked()
	waits := is != notRead && s.reader == nil && s.neededLocked() && s.rules.WantsMore()
	room = is != s.reading || waits && !s.waits
	s.reading = is
	if waits != s.waits {
		s.waits = waits
		if g.mu.unread--; waits {
			g.mu.unread += 2
		}
	}
	return room
}

// readOnLocked stops the share's reader, or lets its store send more.
func (g *group) readOnLocked(s *share) func() {
	r := s.reader
	s.starved = false
	switch {
	case s.reading == notRead || r == nil:
	case !s.neededLocked():
		return r.stop
	case r.mux != nil:
		ahead := g.h.readAhead()
		most, room := min(s.rules.ReadCredit(), ahead), g.h.memory.Room(s.rules.HeldBatches())
		want := min(most, room) - r.granted
		if want >= ahead/4 || r.granted <= 0 && want > 0 {
			r.granted += want
			return func() { r.credit(want) }
		}
		s.starved = room < most
	}
	return nil
}

// openLocked gives readers to the shares that wait for one, oldest first, as far as there may be more.
func (g *group) openLocked(actions []func()) []func() {
	reading, merged := 0, 0
	for _, s := range g.orderedLocked() {
		if s.reading == notRead {
			continue
		}
		if s.reading == readBusy {
			if s.rules.IsMerged() {
				if merged++; merged > mergedAtOnce && s.reader == nil {
					continue
				}
			}
			reading++
		}
		if !s.waits || !s.timers() && reading > readersAtOnce {
			continue
		}
		s.waits = false
		s.reader = &reader{g: g, s: s}
		actions = append(actions, s.reader.start)
		if g.mu.unread--; g.mu.unread == 0 {
			break
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
func (s *share) failing() bool { return int(s.misses) >= max(len(s.extent.Replicas), len(s.holders)) }

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

// credit lets the store send more.
func (r *reader) credit(n int) {
	r.mux.Conn.Post(wire.AppendFrame(nil, wire.TypeReadCredit, r.stream, wire.AppendPosition(nil, uint64(n))))
}

// stop ends the stream; the share may be read again by another reader.
func (r *reader) stop() {
	if r.end() {
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

// end takes the stream off its link and closes it, once: it reports whether it did. A stream that the store has ended does not mind.
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

// lost ends the stream and lets the group open another reader: of another store at once, after all have failed in a row after a pause.
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
		r.leaveLocked()
		r.g.mu.Unlock()
		r.g.pump()
	})
}

// Closed implements ws.StreamHandler.
func (r *reader) Closed(err error) { r.lost(err) }
