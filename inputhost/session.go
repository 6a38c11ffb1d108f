package inputhost

import (
	"net/http"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/telemetry"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// session is one publisher's connection; each of its streams publishes to one queue.
type session struct {
	h    *Host
	mux  *ws.Mux
	gone atomic.Bool
}

// servePublish answers GET /v1/publish.
func (h *Host) servePublish(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	draining := h.mu.draining
	h.mu.Unlock()
	leave, ok := h.tasks.Enter()
	if ok {
		defer leave()
	}
	if draining || !ok {
		http.Error(w, "draining: publish through another input host", http.StatusServiceUnavailable)
		return
	}
	conn, err := ws.Upgrade(w, r, ws.Options{ReadLimit: wire.MaxPayload + 2*wire.MaxBatchBytes, Admission: h.clients})
	if err != nil {
		h.metrics.refused.WithLabelValues(string(core.CodeOf(err))).Inc()
		h.remote.Info("publisher's connection refused", telemetry.KeyPeer, r.RemoteAddr, telemetry.KeyErr, err)
		return
	}
	s := &session{h: h}
	s.mux = ws.NewMux(conn, s.accept)
	h.mu.Lock()
	h.mu.sessions[s] = struct{}{}
	draining = h.mu.draining
	h.mu.Unlock()
	if draining { // it began between the look above and now
		s.drain()
	}
	h.metrics.sessions.Inc()
	if err := s.mux.Run(h.tasks.Context()); err != nil && h.tasks.Context().Err() == nil {
		h.remote.Info("publisher's connection ended", telemetry.KeyPeer, conn.RemoteAddr(), telemetry.KeyErr, err)
	}
	s.gone.Store(true)
	h.metrics.sessions.Dec()
	h.mu.Lock()
	delete(h.mu.sessions, s)
	h.mu.Unlock()
}

// drain asks the publisher to go elsewhere.
func (s *session) drain() { s.mux.Conn.Post(wire.AppendFrame(nil, wire.TypeDrain, 0, nil)) }

// accept opens a stream by its PublishHello.
func (s *session) accept(f wire.Frame, _ *ws.Message) ws.StreamHandler {
	if f.Type != wire.TypePublishHello {
		if f.Type != wire.TypePublishClose {
			s.refuse(f.Stream, core.Errorf(core.CodeBadFrame, "frame %d before the stream's hello", f.Type))
		}
		return nil
	}
	if err := s.mux.Admit(); err != nil {
		s.refuse(f.Stream, err)
		return nil
	}
	return &publisher{s: s, stream: f.Stream}
}

func (s *session) refuse(stream uint32, err error) {
	s.h.metrics.refused.WithLabelValues(string(core.CodeOf(err))).Inc()
	body, merr := proto.Marshal(convert.ErrorToProto(err))
	if merr != nil {
		body = nil
	}
	s.mux.Forget(stream)
	s.mux.Conn.Post(wire.AppendFrame(nil, wire.TypeError, stream, body))
}
