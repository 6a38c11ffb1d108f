package storehost

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/telemetry"
	"github.com/columbamq/columba/storehost/extentlog"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

const (
	maxPiece  = 1 << 20 // bytes of batches sent of one stream before the next one's turn
	maxCredit = 1 << 30
)

// readStream follows one extent for one reader. It has no goroutine: wakes and credit put it in the session's ready
// list, and the pusher serves it.
type readStream struct {
	s      *session
	id     uint32
	extent core.ExtentID
	stop   func() // of following

	// of the pusher
	next      core.Seq   // first seq to send
	announced core.Seq   // committed seq the reader knows of
	due       *dueReader // of a timer extent, for which next means nothing; nil: of a log

	// under s.mu
	timer  *time.Timer // of due
	credit int64       // bytes it takes; the last batch may go below zero
	queued bool
	ended  bool
}

func newReadStream(s *session, id uint32) *readStream {
	s.h.metrics.readStreams.Inc()
	return &readStream{s: s, id: id, stop: func() {}, queued: true} // not served before begin is done
}

// HandleFrame implements ws.StreamHandler.
func (r *readStream) HandleFrame(f wire.Frame, _ *ws.Message) {
	var err error
	switch f.Type {
	case wire.TypeOpenRead:
		err = r.begin(f.Body)
	case wire.TypeReadCredit:
		var n uint64
		if n, err = wire.DecodePosition(f.Body); err == nil {
			r.grant(n)
		}
	case wire.TypeCloseRead:
		if r.end() {
			r.s.mux.Forget(r.id)
		}
	default:
		err = core.Errorf(core.CodeBadFrame, "unexpected frame %d on a read stream", f.Type)
	}
	if err != nil {
		r.refuse(err)
	}
}

// Closed implements ws.StreamHandler.
func (r *readStream) Closed(error) { r.end() }

func (r *readStream) begin(body []byte) error {
	if !r.extent.IsZero() {
		return core.Errorf(core.CodeBadFrame, "the stream has an extent already")
	}
	var req pb.OpenRead
	if err := proto.Unmarshal(body, &req); err != nil {
		return core.Errorf(core.CodeBadFrame, "open-read frame does not parse: %w", err)
	}
	extent, err := convert.Extent(req.Extent)
	if err != nil {
		return err
	}
	r.extent = extent.ID
	state, err := r.s.log.State(extent.ID)
	if err == nil && state.Extent.Kind == core.KindTimer {
		r.due, err = newDueReader(req.Known)
	}
	if err != nil {
		return err
	}
	if err := r.s.h.readers.enter(extent.ID); err != nil {
		return err
	}
	r.next = max(core.Seq(req.From), 1)
	unfollow := r.s.log.Follow(extent.ID, r.wake)
	r.stop = func() {
		unfollow()
		r.s.h.readers.leave(extent.ID)
	}
	r.s.mu.Lock()
	r.queued = false
	r.s.mu.Unlock()
	r.grant(req.Credit)
	return nil
}

func (r *readStream) grant(n uint64) {
	r.s.mu.Lock()
	r.credit = min(r.credit+int64(min(n, maxCredit)), maxCredit)
	r.s.mu.Unlock()
	r.wake()
}

// wake puts the stream in the ready list. It does not block: the log's committer calls it.
func (r *readStream) wake() {
	r.s.mu.Lock()
	if !r.queued && !r.ended {
		r.queued = true
		r.s.mu.ready.push(r)
	}
	r.s.mu.Unlock()
	r.s.wake()
}

// end reports whether this call ended the stream.
func (r *readStream) end() bool {
	r.s.mu.Lock()
	ended := r.ended
	r.ended = true
	if r.timer != nil {
		r.timer.Stop()
	}
	r.s.mu.Unlock()
	if ended {
		return false
	}
	r.stop()
	r.s.h.metrics.readStreams.Dec()
	return true
}

// refuse ends the stream with an error. A reader may ask for an extent that this store lost, or removed, a moment ago:
// it reads another replica, so that is no news.
func (r *readStream) refuse(err error) {
	if r.end() {
		level := slog.LevelInfo
		if core.CodeOf(err) == core.CodeNotFound {
			level = slog.LevelDebug
		}
		r.s.h.remote.Log(context.Background(), level, "read stream refused", telemetry.KeyPeer, r.s.mux.Conn.RemoteAddr(), telemetry.KeyExtent, r.extent, telemetry.KeyErr, err)
		r.s.refuse(r.id, err)
	}
}

// allowance is how many bytes may be sent now; ok is false when the stream has ended.
func (r *readStream) allowance() (bytes int64, ok bool) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r.credit, !r.ended
}

// readable is the last seq a reader may see: what is committed on all replicas, or all of a sealed extent.
func readable(s extentlog.State) core.Seq {
	if s.Sealed {
		return min(s.L, s.Last)
	}
	return min(s.Committed, s.Last)
}

// incomplete is what a replica that lacks some of what is before its end answers where it stops.
func incomplete(s extentlog.State) error {
	return core.Errorf(core.CodeIncomplete, "extent %s ends at %d here, its end is %d; read another replica", s.Extent.ID, s.Last, s.L)
}

// serve sends one piece of what the reader may have; it reports whether there is more to send at once. Only the pusher
// calls it.
func (r *readStream) serve(ctx context.Context) (again bool) {
	credit, ok := r.allowance()
	if !ok {
		return false
	}
	state, err := r.s.log.State(r.extent)
	if err == nil && state.Damaged {
		err = core.Errorf(core.CodeCorrupt, "extent %s is quarantined on this store; read another replica", r.extent)
	}
	if err != nil {
		r.refuse(err)
		return false
	}
	if r.due != nil {
		return r.serveDue(ctx, state, credit)
	}
	limit := readable(state)
	if r.next <= limit && credit > 0 {
		sent, err := r.send(ctx, limit, int(min(credit, maxPiece)))
		if err != nil {
			r.refuse(err)
			return false
		}
		if again = sent && r.next <= limit; again {
			return true
		}
	}
	if state.Sealed && r.next > limit {
		r.finish(state)
		return false
	}
	if limit > max(r.announced, r.next-1) {
		r.announced = limit
		r.s.position(wire.TypeReadCommitted, r.id, uint64(limit))
	}
	return false
}

// send reads and queues a piece; sent is false when the next batch goes beyond limit.
func (r *readStream) send(ctx context.Context, limit core.Seq, bytes int) (sent bool, err error) {
	piece, err := r.s.log.Read(r.extent, r.next, limit, bytes)
	if err != nil || len(piece) == 0 {
		return false, err
	}
	last := r.next
	for rest := piece; len(rest) > 0; {
		var b wire.Batch
		if b, rest, err = wire.NextBatch(rest); err != nil {
			return false, err
		}
		last = b.Last()
	}
	n := int64(len(piece))
	r.s.mu.Lock()
	r.credit -= n
	r.s.mu.Unlock()
	r.s.pushed.Add(n)
	p := newParcel(r.s, n)
	if err := r.s.mux.Conn.SendOwned(ctx, wire.AppendBatchesHead(p.head[:0], r.id, len(piece)), piece, p.done); err != nil {
		return false, err
	}
	r.s.h.metrics.readBytes.Add(float64(n))
	r.next = last + 1
	return true, nil
}

// parcel is a piece on its way through the send queue. It is pooled with its callback, so that small ones cost no
// allocation.
type parcel struct {
	s     *session
	bytes int64
	head  [wire.FrameHeaderLen]byte
	done  func()
}

var parcels sync.Pool

func newParcel(s *session, bytes int64) *parcel {
	p, _ := parcels.Get().(*parcel)
	if p == nil {
		p = new(parcel)
		p.done = p.sent
	}
	p.s, p.bytes = s, bytes
	return p
}

// sent is called once, when the piece was written or the connection has ended.
func (p *parcel) sent() {
	s := p.s
	s.pushed.Add(-p.bytes)
	p.s = nil
	parcels.Put(p)
	s.wake()
}

// finish tells the end of a sealed extent. A replica that is shorter than its end never claims to be at it.
func (r *readStream) finish(s extentlog.State) {
	if s.Last < s.L {
		r.refuse(incomplete(s))
		return
	}
	if r.end() {
		r.s.mux.Forget(r.id)
		r.s.position(wire.TypeReadSealed, r.id, uint64(s.L))
	}
}
