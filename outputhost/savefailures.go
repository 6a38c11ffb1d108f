package outputhost

import "time"

// notePut notes how a write ended. It logs the first of failures in a row and one now and then, and their end: when no
// group has rows any more that were tried in the last saveWarning and not stored.
func (s *saver) notePut(writes []groupWrite, unstored []int, err error) {
	now := s.h.deps.Now()
	s.mu.Lock()
	for _, w := range writes {
		switch {
		case w.end == w.first:
		case countBetween(unstored, w.first, w.end) > 0:
			s.mu.lost[w.g] = now
		default:
			delete(s.mu.lost, w.g)
		}
	}
	if err == nil {
		for g, at := range s.mu.lost { // a group that is gone is not tried again
			if now.Sub(at) >= saveWarning {
				delete(s.mu.lost, g)
			}
		}
	}
	since, warn := s.mu.failed, false
	switch {
	case err != nil:
		if s.mu.err = err; since.IsZero() {
			since = now
		}
		if warn = s.mu.failed.IsZero() || now.Sub(s.mu.warned) >= saveWarning; warn {
			s.mu.warned = now
		}
		s.mu.failed = since
	case len(s.mu.lost) == 0:
		s.mu.failed = time.Time{}
	}
	over := !since.IsZero() && s.mu.failed.IsZero()
	s.mu.Unlock()
	switch {
	case warn:
		s.h.log.Warn("checkpoints are not saved: a crash of this host redelivers all messages acked since the last one. Check the metadata: the controller and its disk, or the Cassandra nodes and theirs", "shares", len(unstored), "for", now.Sub(since).Round(time.Second), "err", err)
	case over:
		s.h.log.Info("checkpoints are saved again", "after", now.Sub(since).Round(time.Millisecond))
	}
}

// lost divides groups by whether they had rows in the last write that were not stored.
func (s *saver) lost(due []*group) (others, lost []*group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.lost) == 0 {
		return due, nil
	}
	for _, g := range due {
		if _, again := s.mu.lost[g]; again {
			lost = append(lost, g)
		} else {
			others = append(others, g)
		}
	}
	return others, lost
}

// failing reports whether there are rows that could not be written, and why.
func (s *saver) failing() (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.mu.failed.IsZero(), s.mu.err
}
