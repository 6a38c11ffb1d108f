package dispatch

import (
	"time"

	"github.com/columbamq/columba/core"
)

// Blocking is the message that holds a share's frontier back, and where it stands.
type Blocking struct {
	Seq      core.Seq
	State    string // unread (of a timer extent also: not due), buffered, in flight, delayed, unsaved, ready, dead-lettering or blocked
	Attempts uint16
	Failure  Failure // of the attempt before
	Text     string
	Session  SessionID // that has it in flight
	Until    time.Time // of its lock or delay; zero without
	Enqueued int64     // unix µs; 0 when its bytes are not read
}

var stateNames = [phases]string{
	inFlight: "in flight", delayed: "delayed", unsaved: "unsaved", ready: "ready",
	dying: "dead-lettering", taken: "dead-lettering", retaken: "dead-lettering", blocked: "blocked", unbegun: "ready",
}

// Blocking describes the message after the frontier.
func (s *Share) Blocking() Blocking {
	b := Blocking{Seq: s.done.Frontier() + 1, State: "unread"}
	m := s.table.get(b.Seq)
	if m == nil {
		if b.Seq < s.next {
			b.State = "buffered"
			b.Enqueued = s.bufferedIn(b.Seq).Enqueued
			if s.opens > 0 {
				b.State, b.Until = stateNames[delayed], s.group.instant(s.opens)
			}
		}
		return b
	}
	b.State, b.Attempts, b.Failure, b.Text = stateNames[m.phase], m.attempts, m.failure, s.texts[b.Seq]
	if m.batch != nil {
		b.Enqueued = s.enqueued(m.batch, b.Seq)
	}
	if m.phase == inFlight {
		b.Session = m.session
	}
	if m.phase == inFlight || m.phase == delayed || m.phase == retaken {
		b.Until = s.group.instant(m.due)
	}
	return b
}
