package storehost

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/telemetry"
	"github.com/columbamq/columba/storehost/extentlog"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// Bounds of one connection.
const (
	// maxPushed is how many bytes of batches may wait in the connection's send queue, well below its bound: acks share the
	// queue.
	maxPushed  = 4 << 20
	maxOpening = 1024 // extents being opened at once
	// maxAnswers is how many bytes of answers may wait to be sent: enough to refuse every stream there may be at once.
	maxAnswers = 32 << 20
)

// session is one connection with its append and read streams.
type session struct {
	h       *Host
	log     extentlog.Log
	mux     *ws.Mux
	opening atomic.Int64
	pushed  atomic.Int64  // bytes of batches queued and not written yet
	signal  chan struct{} // capacity 1: the pusher has something to do

	mu struct {
		sync.Mutex
		ready fifo[*readStream] // those that may have something to send, each once
	}
}

// serveLink is one connection's whole life.
func (h *Host) serveLink(w http.ResponseWriter, r *http.Request) {
	log, links, err := h.linked()
	if err == nil && !h.enter() {
		err = core.Errorf(core.CodeDraining, "store is stopping; use another")
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer h.wg.Done()
	conn, err := ws.Upgrade(w, r, ws.Options{ControlBytes: maxAnswers, Admission: h.peers})
	if err != nil {
		h.remote.Info("connection refused", telemetry.KeyPeer, r.RemoteAddr, telemetry.KeyErr, err)
		return
	}
	s := &session{h: h, log: log, signal: make(chan struct{}, 1)}
	s.mux = ws.NewMux(conn, s.accept)
	ctx, cancel := context.WithCancel(links)
	var pusher sync.WaitGroup
	pusher.Go(func() { s.push(ctx) })
	h.metrics.connections.Inc()
	if err := s.mux.Run(ctx); err != nil && links.Err() == nil {
		h.remote.Info("connection ended", telemetry.KeyPeer, conn.RemoteAddr(), telemetry.KeyErr, err)
	}
	h.metrics.connections.Dec()
	cancel()
	pusher.Wait()
}

// accept makes the handler of a new stream. Other frames belong to streams that have just ended.
func (s *session) accept(f wire.Frame, _ *ws.Message) ws.StreamHandler {
	if f.Type != wire.TypeOpenAppend && f.Type != wire.TypeOpenRead {
		return nil
	}
	if err := s.mux.Admit(); err != nil {
		s.refuse(f.Stream, err)
		return nil
	}
	if f.Type == wire.TypeOpenAppend {
		return newAppendStream(s, f.Stream)
	}
	return newReadStream(s, f.Stream)
}

// position sends a frame with one number.
func (s *session) position(t wire.FrameType, stream uint32, v uint64) {
	b := wire.AppendFrameHeader(make([]byte, 0, wire.FrameHeaderLen+8), t, 0, stream, 8)
	s.mux.Conn.Post(wire.AppendPosition(b, v))
}

// refuse ends a stream with an error.
func (s *session) refuse(stream uint32, err error) {
	s.h.metrics.refuse(err)
	body, merr := proto.Marshal(convert.ErrorToProto(err))
	if merr != nil {
		body = nil // an empty error still ends the stream
	}
	s.mux.Forget(stream)
	s.mux.Conn.Post(wire.AppendFrame(nil, wire.TypeRefused, stream, body))
}

func (s *session) wake() {
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

// push sends what the read streams may have, one piece of each stream in turn.
func (s *session) push(ctx context.Context) {
	for ctx.Err() == nil {
		if r := s.next(); r != nil {
			if r.serve(ctx) {
				r.wake()
			}
			continue
		}
		select {
		case <-s.signal:
		case <-ctx.Done():
		}
	}
}

// next is a stream to serve; nil when there is nothing to do, or no room for more batches.
func (s *session) next() *readStream {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.ready.len() == 0 || s.pushed.Load() >= maxPushed {
		return nil
	}
	r := s.mu.ready.pop()
	r.queued = false
	return r
}

// fifo is a queue; its owner guards it and bounds it.
type fifo[T any] struct {
	items []T
	head  int
}

func (f *fifo[T]) len() int { return len(f.items) - f.head }

func (f *fifo[T]) push(v T) {
	if f.head > 64 && f.head > len(f.items)/2 {
		rest := copy(f.items, f.items[f.head:])
		clear(f.items[rest:])
		f.items, f.head = f.items[:rest], 0
	}
	f.items = append(f.items, v)
}

// pop must not be called on an empty queue.
func (f *fifo[T]) pop() T {
	var zero T
	v := f.items[f.head]
	f.items[f.head] = zero
	if f.head++; f.head == len(f.items) {
		f.items, f.head = f.items[:0], 0
	}
	return v
}
