package publish

import (
	"time"

	"github.com/columbamq/columba/core"
)

// waitingLocked are the sessions that have something in flight.
func (p *Publisher) waitingLocked() (sessions []*session) {
	for _, s := range p.mu.leaving {
		if len(s.inflight) > 0 {
			sessions = append(sessions, s)
		}
	}
	if s := p.mu.active; s != nil && len(s.inflight) > 0 {
		sessions = append(sessions, s)
	}
	return sessions
}

// watch looks at a session that waits for answers. A host that gives no sign of life is asked for one, and counts as
// lost when none comes: it was stopped, or cut off. So does one that lives and does not answer for long.
func (p *Publisher) watch(s *session, now int64) {
	p.mu.Lock()
	if s.over || len(s.inflight) == 0 {
		p.mu.Unlock()
		return
	}
	waits := time.Duration(now - s.inflight[0].sentAt)
	p.mu.Unlock()
	silent := min(waits, s.mux.Conn.Silent())
	switch {
	case silent >= silentTimeout:
		err := core.Errorf(core.CodeUnavailable, "input host %s gave no sign of life for %s", s.host.ID, silentTimeout)
		s.mux.Forget(s.stream)
		s.Closed(err)
		s.mux.Conn.Abort(err) // whoever else uses it would wait in vain as well
	case waits > answerTimeout:
		s.leave()
		s.Closed(core.Errorf(core.CodeUnavailable, "input host %s did not answer for %s", s.host.ID, answerTimeout))
	case silent >= pingAfter:
		s.mux.Conn.Ping()
	}
}
