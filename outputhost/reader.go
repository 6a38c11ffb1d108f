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
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/membership"
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
	granted int // bytes asked for and not sent yet; the group's mutex's
}

// buffer counts the references to one websocket message that holds batches.
type buffer struct {
	m    *ws.Message
	refs atomic.Int32
}

func (b *buffer) retain() { b.refs.Add(1) }

// Release implements dispatch.Buffer. A nil buffer holds nothing.
func (b *buffer) Release() {
	if b == nil {
		return
	}
	if b.refs.Add(-1) == 0 {
		b.m.Release()
	}
}

// readersAtOnce is how many extents a group reads side by side, oldest first: a long backlog must not be read from all its ends.
const readersAtOnce = 8

// readLocked decides what the group's readers should do and returns it as actions to take outside the mutex.
func (g *group) readLocked() (actions []func()) {
	wanted := g.wantedLocked()
	reading := 0
	for _, s := range g.orderedLocked() {
		if g.mu.closed || s.finished() || s.exhausted() {
			continue
		}
		if reading++; reading > readersAtOnce && s.reader == nil {
			break
		}
		r := s.reader
		switch {
		case r == nil && (wanted || s.restored) && s.rules.WantsMore():
			s.reader = &reader{g: g, s: s}
			actions = append(actions, s.reader.start)
		case r != nil && r.mux != nil:
			ahead := g.h.readAhead()
			want := min(s.rules.ReadCredit(), ahead) - r.granted
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
		g.mu.ordered = slices.SortedFunc(maps.Values(g.mu.shares), func(a, b *share) int { return slices.Compare(a.extent.ID.ID[:], b.extent.ID.ID[:]) })
	}
	return g.mu.ordered
}

// readAhead is what one share may have asked a store for: the host's memory for it, divided by the readers there are.
func (h *Host) readAhead() int {
	return min(h.cfg.ReadAhead, max(h.cfg.ReadMemory/max(int(h.readers.Load()), 1), minReadAhead))
}

const minReadAhead = 64 << 10

// exhausted: everything there is was read.
func (s *share) exhausted() bool { return s.end && s.rules.ReadFrom() > s.l }

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

// connect asks a replica, a different one after each failure, for everything from the first seq that is missing.
func (r *reader) connect(ctx context.Context) error {
	s := r.s
	r.g.mu.Lock()
	tries := s.tries
	s.tries++
	from := s.rules.ReadFrom()
	credit := min(s.rules.ReadCredit(), r.g.h.readAhead())
	r.g.mu.Unlock()
	store := s.extent.Replicas[tries%len(s.extent.Replicas)]
	host, ok := membership.Find(r.g.h.deps.Members, store)
	if !ok {
		return core.Errorf(core.CodeUnavailable, "store %s is not there", store)
	}
	mux, err := r.g.h.deps.Peers.Link(ctx, host.Address, "/v1/store")
	if err != nil {
		return err
	}
	body, err := proto.Marshal(&pb.OpenRead{Extent: convert.ExtentToProto(s.extent), From: uint64(from), Credit: uint64(credit)})
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
		r.mux, r.stream, r.granted = mux, stream, credit
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
		mux.Conn.TrySend(wire.AppendFrame(nil, wire.TypeCloseRead, stream, nil))
	}
	return nil
}

// credit lets the store send more.
func (r *reader) credit(n int) {
	b, at := wire.BeginFrame(make([]byte, 0, wire.FrameHeaderLen+8), wire.TypeReadCredit, 0, r.stream)
	b = wire.AppendPosition(b, uint64(n))
	wire.EndFrame(b, at)
	if !r.mux.Conn.TrySend(b) {
		r.lost(core.Errorf(core.CodeUnavailable, "the link to the store does not take more"))
	}
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
		mux.Conn.TrySend(wire.AppendFrame(nil, wire.TypeCloseRead, r.stream, nil))
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

// lost ends the stream and, after a pause, lets the group open another reader.
func (r *reader) lost(err error) {
	mux, ended := r.end()
	if !ended {
		return
	}
	if mux != nil { // a stream that the store has ended does not mind
		mux.Conn.TrySend(wire.AppendFrame(nil, wire.TypeCloseRead, r.stream, nil))
	}
	h := r.g.h
	r.g.mu.Lock()
	r.s.misses++
	pause := min(readRetry<<min(r.s.misses-1, 10), maxReadRetry)
	r.g.mu.Unlock()
	level := slog.LevelInfo
	if core.CodeOf(err) == core.CodeNotFound && pause < maxReadRetry {
		level = slog.LevelDebug // the input host is about to open it there
	}
	h.log.Log(context.Background(), level, "reading an extent was interrupted", "extent", r.s.extent.ID, "group", r.g.name, "err", err)
	h.metrics.readFailures.Inc()
	h.tasks.Go(func(ctx context.Context) {
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		r.g.mu.Lock()
		if r.s.reader == r {
			r.s.reader = nil
		}
		r.g.mu.Unlock()
		r.g.pump()
	})
}

// The pause before another replica is tried doubles with each failure in a row. It begins short: a share is often given out before
// its extent is open on the store.
const (
	readRetry    = 2 * time.Millisecond
	maxReadRetry = time.Second
)

// Closed implements ws.StreamHandler.
func (r *reader) Closed(err error) { r.lost(err) }

// HandleFrame implements ws.StreamHandler.
func (r *reader) HandleFrame(f wire.Frame, m *ws.Message) {
	var err error
	switch f.Type {
	case wire.TypeBatches:
		err = r.batches(f.Body, m)
	case wire.TypeReadCommitted, wire.TypeReadSealed:
		var seq uint64
		if seq, err = wire.DecodePosition(f.Body); err == nil {
			r.position(f.Type == wire.TypeReadSealed, core.Seq(seq))
		}
	case wire.TypeRefused, wire.TypeError:
		err = convert.FrameError(f.Body)
	default:
		err = core.Errorf(core.CodeBadFrame, "unexpected frame %d on a read stream", f.Type)
	}
	if err != nil {
		r.lost(err)
		return
	}
	r.g.pump()
}

func (r *reader) position(sealed bool, seq core.Seq) {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	r.s.misses = 0
	r.s.last = max(r.s.last, seq)
	if sealed {
		r.s.end, r.s.l = true, seq
	}
}

// batches offers what came to the share. Bytes with a wrong checksum are never delivered: another replica is asked.
func (r *reader) batches(body []byte, m *ws.Message) error {
	for len(body) > 0 {
		batch, offsets, rest, err := nextBatch(body)
		if err != nil {
			return core.Errorf(core.CodeCorrupt, "batch at %d of extent %s: %w", batch.Base, r.s.extent.ID, err)
		}
		body = rest
		records := dispatch.Records{Base: batch.Base, Offsets: offsets, Bytes: batch.Records, Enqueued: batch.AppendTime}
		b := hold(&records, m)
		r.g.mu.Lock()
		if r.s.removed {
			r.g.mu.Unlock()
			b.Release()
			return nil
		}
		r.s.misses = 0
		r.granted -= len(batch.Bytes)
		r.s.last = max(r.s.last, batch.Last())
		err = r.s.rules.Offer(records, r.g.h.deps.Now())
		r.g.mu.Unlock()
		if err != nil {
			b.Release()
			return err
		}
	}
	return nil
}

// hold keeps the records' bytes: by a reference to the message, or, for a batch that is a small part of it, by a copy (and nil), so that
// one stuck record does not keep a whole message.
func hold(r *dispatch.Records, m *ws.Message) *buffer {
	if 4*len(r.Bytes) < len(m.Bytes) {
		r.Bytes = append([]byte(nil), r.Bytes...)
		return nil
	}
	m.Retain()
	b := &buffer{m: m}
	b.refs.Store(1)
	r.Buffer = b
	return b
}

// nextBatch splits the first batch off, verifies its records and finds where each begins, all in one pass.
func nextBatch(b []byte) (batch wire.Batch, offsets []uint32, rest []byte, err error) {
	if batch, err = wire.DecodeBatch(b); err != nil {
		return batch, nil, nil, err
	}
	offsets = make([]uint32, 0, batch.Count+1)
	at := 0
	var r wire.Record
	for range batch.Count {
		offsets = append(offsets, uint32(at))
		n, err := wire.DecodeRecord(batch.Records[at:], &r)
		if err != nil {
			return batch, nil, nil, err
		}
		at += n
	}
	end := wire.BatchHeaderLen + at
	batch.Bytes, batch.Records = b[:end:end], b[wire.BatchHeaderLen:end:end]
	return batch, append(offsets, uint32(at)), b[end:], nil
}
