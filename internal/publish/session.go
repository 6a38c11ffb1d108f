package publish

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// session is one stream to an input host. Its state is guarded by the publisher's mutex.
//
//	greeting ──HelloOK──▶ active ──drain, refused, moved──▶ leaving ──nothing in flight──▶ over
//	    └──Error, lost──────┴──────────Error, lost──────────────┴────────────────────────▶ over
type session struct {
	p      *Publisher
	host   Host
	mux    *ws.Mux
	stream uint32
	hello  chan error // buffered; the greeting's outcome
	acks   wire.PublishAck

	version  uint64 // of the list of hosts it sent
	greeted  bool
	ordered  bool // a record without a success ends it
	over     bool
	window   int
	next     uint64   // number of the next record
	inflight []*batch // by first number
	bytes    int      // of them
	pace     pacing
	why      error // the host refuses records
	writing  int   // batches that the connection has not written
}

var _ ws.StreamHandler = (*session)(nil)

// takes reports whether the batch may be sent now. A batch that still gathers records waits for the write under way,
// and while several batches are in flight, the last of them sent a moment ago; a full batch goes as soon as the window
// has room.
func (s *session) takes(b *batch, gathering bool, now int64) bool {
	if s.writing > 0 {
		return false
	}
	if len(s.inflight) > 0 && s.bytes+len(b.buf) > s.window {
		return false
	}
	return !gathering || len(s.inflight) < maxGathering || now-s.inflight[len(s.inflight)-1].sentAt >= int64(gatherMost)
}

// startLocked counts the batch as in flight and numbers its records.
func (s *session) startLocked(b *batch, now int64) (first uint64) {
	b.first, b.sentAt, b.open = s.next, now, len(b.slots)
	for i := range b.slots {
		b.slots[i].state |= slotOpen
	}
	b.refs.Add(1)
	s.next += uint64(len(b.slots))
	s.inflight = append(s.inflight, b)
	s.bytes += len(b.buf)
	s.pace.sent(now, len(b.buf))
	s.writing++
	return b.first
}

// written is called when the connection needs the batch's bytes no more.
func (s *session) written(b *batch) {
	s.p.mu.Lock()
	s.writing--
	stuck := s.p.mu.stuck
	s.p.mu.Unlock()
	b.release()
	if stuck {
		signal(s.p.wake)
	}
}

// HandleFrame takes what the host sends.
func (s *session) HandleFrame(f wire.Frame, _ *ws.Message) {
	var err error
	switch f.Type {
	case wire.TypePublishAck:
		if err = s.acks.Decode(f.Body); err == nil {
			err = s.p.answer(s, s.acks.Runs)
		}
	case wire.TypeThrottled:
		var m pb.Throttled
		if err = proto.Unmarshal(f.Body, &m); err == nil && m.Reason != nil {
			s.explained(convert.ErrorFromProto(m.Reason))
		} else if err == nil {
			s.throttled(m.RetryAfter.AsDuration())
		}
	case wire.TypePublishHelloOK:
		err = s.greet(f.Body)
	case wire.TypeDrain:
		s.p.moveAway(s, core.ErrDraining)
	case wire.TypeReconfigure:
		var m pb.Reconfigure
		if err = proto.Unmarshal(f.Body, &m); err == nil {
			hosts := make([]Host, len(m.Hosts))
			for i, h := range m.Hosts {
				hosts[i] = Host{ID: core.HostID(h.Id), Address: h.Address}
			}
			s.p.reconfigure(s, m.Version, hosts)
		}
	case wire.TypeError:
		s.mux.Forget(s.stream)
		s.Closed(convert.FrameError(f.Body))
		return
	default:
		err = core.Errorf(core.CodeVersion, "input host sent a frame of type %d", f.Type)
	}
	if err != nil {
		s.mux.Forget(s.stream)
		s.Closed(core.Errorf(core.CodeUnavailable, "input host %s: %w", s.host.ID, err))
	}
}

func (s *session) greet(body []byte) error {
	var ok pb.PublishHelloOK
	if err := proto.Unmarshal(body, &ok); err != nil {
		return core.Errorf(core.CodeBadFrame, "hello does not parse: %w", err)
	}
	s.p.mu.Lock()
	again := s.greeted
	s.greeted = true
	s.window = int(ok.Window)
	if s.window <= 0 {
		s.window = defaultWindow
	}
	s.p.mu.maxPayload = int(ok.MaxMessage)
	s.ordered, s.p.mu.ordered = ok.Ordered, ok.Ordered
	if before := s.p.mu.queueID; before != "" && before != ok.QueueId {
		s.p.remadeLocked()
	}
	s.p.mu.queueID = ok.QueueId
	s.p.mu.Unlock()
	if !again {
		s.hello <- nil
	}
	return nil
}

// explained keeps why the host refuses records: its answers say no more than a code.
func (s *session) explained(why error) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.why = why
}

// throttled holds sending back for so long; the host may have said why.
func (s *session) throttled(d time.Duration) {
	s.p.mu.Lock()
	why := s.why
	s.pace.throttled(s.p.now(), d)
	s.p.mu.Unlock()
	text := "input host throttles the queue"
	if core.CodeOf(why) == core.CodeThrottled {
		text = why.Error()
	}
	s.p.throttle(&core.Error{Code: core.CodeThrottled, Text: text, RetryAfter: d})
}

// Closed ends the session: what it had in flight is sent again on another.
func (s *session) Closed(err error) {
	p := s.p
	p.mu.Lock()
	if s.over {
		p.mu.Unlock()
		return
	}
	s.over = true
	if !s.greeted {
		p.mu.Unlock()
		s.hello <- err
		return
	}
	p.mu.lastErr = err
	p.forgetLocked(s)
	if len(s.inflight) > 0 || core.CodeOf(err).Class() != core.ClassRetryable {
		p.pauseLocked(p.now(), jitter())
	}
	for _, b := range s.inflight {
		p.unansweredLocked(b, err)
	}
	s.inflight, s.bytes = nil, 0
	p.mu.Unlock()
	p.cfg.Log.Info("input host lost", "queue", p.cfg.Queue, "host", s.host.ID, "err", err)
	signal(p.wake)
	signal(p.outcomes)
}

// leave tells the host that nothing more comes and drops the stream.
func (s *session) leave() {
	s.mux.Forget(s.stream)
	s.mux.Conn.Post(wire.AppendFrame(nil, wire.TypePublishClose, s.stream, nil))
}

// forgetLocked takes a session out of the publisher's lists.
func (p *Publisher) forgetLocked(s *session) {
	if p.mu.active == s {
		p.mu.active = nil
	}
	p.mu.avoid = s.host.ID
	p.mu.leaving = slices.DeleteFunc(p.mu.leaving, func(l *session) bool { return l == s })
}

// moveAway sends new records elsewhere; the session ends when nothing of it is in flight.
func (p *Publisher) moveAway(s *session, why error) {
	p.mu.Lock()
	idle := p.moveAwayLocked(s, why)
	p.mu.Unlock()
	if idle {
		s.leave()
	}
	signal(p.wake)
}

// moveAwayLocked reports whether the caller shall make the session leave.
func (p *Publisher) moveAwayLocked(s *session, why error) bool {
	if s.over || slices.Contains(p.mu.leaving, s) {
		return false
	}
	p.forgetLocked(s)
	p.mu.lastErr = why
	if len(s.inflight) > 0 {
		p.mu.leaving = append(p.mu.leaving, s)
		return false
	}
	s.over = true
	return true
}

// In a CP queue records are stored in the order of the Append calls. So there is one session at a time, and it ends
// with the first record that is not stored: the next session, with a higher number, goes on from there. The host drops
// the records that it still holds of older sessions.

// nextSession numbers the sessions from 1.
func (p *Publisher) nextSession() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.sessions++
	return p.mu.sessions
}

func (p *Publisher) ordered() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.ordered
}

// beginAgain ends a session of which a record was not stored: what it has in flight behind that one is sent again,
// after it.
func (p *Publisher) beginAgain(s *session) {
	p.mu.Lock()
	err := p.mu.lastErr
	p.mu.Unlock()
	if err == nil || fatal(err) {
		err = core.Errorf(core.CodeUnavailable, "input host %s did not store a message", s.host.ID)
	}
	s.leave()
	s.Closed(err)
}
