package outputhost

import (
	"context"
	"maps"
	"net/http"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/internal/telemetry"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// session is one consumer's connection; each of its streams consumes for one group.
type session struct {
	h   *Host
	mux *ws.Mux
	mu  struct {
		sync.Mutex
		waiting map[*consumer]*group // streams of this connection, which was full, for which their groups have something
	}
}

// newSession upgrades a request to a connection.
func (h *Host) newSession(w http.ResponseWriter, r *http.Request) (*session, error) {
	s := &session{h: h}
	s.mu.waiting = make(map[*consumer]*group)
	conn, err := ws.Upgrade(w, r, ws.Options{ReadLimit: consumeReadLimit, SendBytes: maxUnread, Together: h.unread, Drained: s.drained, Admission: h.clients})
	if err != nil {
		return nil, err
	}
	s.mux = ws.NewMux(conn, s.accept)
	return s, nil
}

// full reports that the consumer reads more slowly than it is sent to. It is given its turn again when there is room.
func (s *session) full(c *consumer) bool {
	if !s.mux.Conn.Full() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	full := s.mux.Conn.Full() // else drained was called, and may not be again
	if full {
		s.mu.waiting[c] = c.group.Load()
	}
	return full
}

// drained pumps the groups that waited for room.
func (s *session) drained() {
	s.mu.Lock()
	waiting := maps.Clone(s.mu.waiting)
	clear(s.mu.waiting)
	s.mu.Unlock()
	s.h.tasks.Go(func(context.Context) {
		groups := make(map[*group]bool)
		for c, g := range waiting {
			c.emptied(g)
			groups[g] = true
		}
		for g := range groups {
			g.pump()
		}
	})
}

// serveConsume answers GET /v1/consume.
func (h *Host) serveConsume(w http.ResponseWriter, r *http.Request) {
	leave, ok := h.tasks.Enter()
	if !ok {
		http.Error(w, "draining: consume from another output host", http.StatusServiceUnavailable)
		return
	}
	defer leave()
	s, err := h.newSession(w, r)
	if err != nil {
		h.remote.Info("the host refused the connection of a consumer", telemetry.KeyPeer, r.RemoteAddr, telemetry.KeyErr, err)
		return
	}
	h.mu.Lock()
	h.mu.sessions[s] = struct{}{}
	h.mu.Unlock()
	if h.draining.Load() { // it may have begun just before this session was there to be told
		s.drain()
	}
	h.metrics.sessions.Inc()
	if err := s.mux.Run(h.tasks.Context()); err != nil && h.tasks.Context().Err() == nil {
		h.remote.Debug("the connection of a consumer ended with an error", telemetry.KeyPeer, s.mux.Conn.RemoteAddr(), telemetry.KeyErr, err)
	}
	h.metrics.sessions.Dec()
	h.mu.Lock()
	delete(h.mu.sessions, s)
	h.mu.Unlock()
}

// drain asks the consumer to go elsewhere.
func (s *session) drain() { s.mux.Conn.Post(wire.AppendFrame(nil, wire.TypeDrain, 0, nil)) }

// accept opens a stream by its ConsumeHello.
func (s *session) accept(f wire.Frame, _ *ws.Message) ws.StreamHandler {
	switch f.Type {
	case wire.TypeConsumeHello:
		if err := s.mux.Admit(); err != nil {
			s.refuse(f.Stream, err)
			return nil
		}
		return &consumer{s: s, h: s.h, stream: f.Stream, id: dispatch.SessionID(s.h.nextSession.Add(1))}
	case wire.TypeConsumeCredit, wire.TypeAck, wire.TypeNack, wire.TypeReject, wire.TypeExtend, wire.TypeReturn, wire.TypeConfirm, wire.TypeConsumeClose:
		// Of a stream this side has ended: its error frame is on the way.
	default:
		s.refuse(f.Stream, core.Errorf(core.CodeBadFrame, "frame %d before the stream's hello", f.Type))
	}
	return nil
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
