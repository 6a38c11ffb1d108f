package writer

import (
	"context"
	"sync"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// stream is the append stream of one extent to one store, over the link that all extents share.
type stream struct {
	w       *Writer
	replica int
	mux     *ws.Mux
	id      uint32
	head    [wire.FrameHeaderLen + 8 + wire.BatchHeaderLen]byte // of the batch that is being appended; the writer appends one at a time
	opened  chan struct{}
	once    sync.Once
	err     error // of the opening
}

// OpenReplica opens the extent on one store and waits for its answer. The answers to appends go to w.
func OpenReplica(ctx context.Context, mux *ws.Mux, w *Writer, replica int) (Replica, error) {
	s := &stream{w: w, replica: replica, mux: mux, opened: make(chan struct{})}
	id, err := mux.Open(s)
	if err != nil {
		return nil, err
	}
	s.id = id
	body, err := proto.Marshal(&pb.OpenAppend{Extent: convert.ExtentToProto(w.Extent)})
	if err != nil {
		mux.Forget(id)
		return nil, core.Errorf(core.CodeInternal, "encode open of extent %s: %w", w.Extent.ID, err)
	}
	if err := mux.Conn.Send(ctx, wire.AppendFrame(nil, wire.TypeOpenAppend, id, body)); err != nil {
		mux.Forget(id)
		return nil, err
	}
	select {
	case <-s.opened:
	case <-ctx.Done():
		s.Close()
		return nil, core.Errorf(core.CodeUnavailable, "open extent %s on %s: %w", w.Extent.ID, w.Extent.Replicas[replica], context.Cause(ctx))
	}
	if s.err != nil {
		mux.Forget(id) // the store keeps no stream that it refused
		return nil, core.Errorf(core.CodeOf(s.err), "open extent %s on %s: %w", w.Extent.ID, w.Extent.Replicas[replica], s.err)
	}
	return s, nil
}

// Append queues a batch on the link: the frame's head and the batch header in one small buffer, the records as they
// are. It never waits: a store that reads slowly must not hold up the other extents of the link. The writers' bounds
// limit the bytes that wait on the link.
func (s *stream) Append(h wire.BatchHeader, records []byte, committed core.Seq, release func()) error {
	head := wire.AppendAppendHead(s.head[:0], s.id, committed, wire.BatchHeaderLen+len(records))
	n := len(head)
	head = head[:n+wire.BatchHeaderLen]
	wire.PutBatchHeader(head[n:], h)
	return s.mux.Conn.PushOwned(head, records, release)
}

// Commit tells the store how far readers may go. It reaches the store, or the link ends and the extent with it.
func (s *stream) Commit(committed core.Seq) {
	var room [wire.FrameHeaderLen + 8]byte
	b, at := wire.BeginFrame(room[:0], wire.TypeCommitted, 0, s.id)
	b = wire.AppendPosition(b, uint64(committed))
	wire.EndFrame(b, at)
	s.mux.Conn.Post(b)
}

func (s *stream) Close() {
	s.mux.Forget(s.id)
	s.mux.Conn.Post(wire.AppendFrame(nil, wire.TypeCloseAppend, s.id, nil))
}

// HandleFrame implements ws.StreamHandler.
func (s *stream) HandleFrame(f wire.Frame, _ *ws.Message) {
	switch f.Type {
	case wire.TypeAppendAck:
		durable, err := wire.DecodePosition(f.Body)
		if err != nil {
			s.fail(err)
			return
		}
		s.w.Acked(s.replica, core.Seq(durable))
	case wire.TypeOpened:
		s.once.Do(func() { close(s.opened) })
	case wire.TypeRefused, wire.TypeError:
		s.fail(convert.FrameError(f.Body))
	default:
		s.fail(core.Errorf(core.CodeBadFrame, "unexpected frame %d on an append stream", f.Type))
	}
}

// Closed implements ws.StreamHandler.
func (s *stream) Closed(err error) { s.fail(err) }

// fail ends the opening, or the writer when the stream was open.
func (s *stream) fail(err error) {
	opening := false
	s.once.Do(func() {
		opening = true
		s.err = err
		close(s.opened)
	})
	if !opening {
		s.w.Fail(s.w.Extent.Replicas[s.replica], err)
	}
}
