package publish

import "github.com/columbamq/columba/core"

// In a CP queue records are stored in the order they were taken. So there is one session at a time, and it ends with the first record that is
// not stored: the next one, with a higher number, goes on from there. What the host still holds of older sessions it drops.

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

// beginAgain ends a session of which a record was not stored: what it has in flight behind that one is sent again, after it.
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
