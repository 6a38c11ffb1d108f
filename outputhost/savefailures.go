package outputhost

import (
	"maps"
	"slices"
	"time"
)

// notePut notes how a write ended. It logs the first of failures in a row and one now and then, and their end: when no
// group has rows any more that were not stored when they were tried last.
func (s *saver) notePut(writes []groupWrite, unstored []int, err error) {
	now := s.h.deps.Now()
	s.mu.Lock()
	for _, w := range writes {
		s.noteLostLocked(w, unstored, now)
	}
	var over time.Time
	since, warn, most := s.mu.failed, false, lostFor
	if err == nil {
		most = s.triedWithin()
	}
	s.forgetLostLocked(now, most)
	switch {
	case err != nil:
		if s.mu.err = err; since.IsZero() {
			since = now
		}
		if warn = s.mu.failed.IsZero() || now.Sub(s.mu.warned) >= saveWarning; warn {
			s.mu.warned = now
		}
		s.mu.failed = since
	default:
		over = s.endFailuresLocked()
	}
	s.mu.Unlock()
	s.tellEnd(over, now)
	if warn {
		s.h.log.Warn("checkpoints are not saved: a crash of this host redelivers all messages acked since the last one. Check the metadata: the controller and its disk, or the Cassandra nodes and theirs", "shares", len(unstored), "for", now.Sub(since).Round(time.Second), "err", err)
	}
}

// noteGone notes that shares that were not stored are gone. A host that has nothing else to save has no write that
// would.
func (s *saver) noteGone(now time.Time) {
	s.mu.Lock()
	s.forgetLostLocked(now, lostFor)
	over := s.endFailuresLocked()
	s.mu.Unlock()
	s.tellEnd(over, now)
}

// endFailuresLocked answers when the failures began that are over; zero: there were none, or they are not.
func (s *saver) endFailuresLocked() (since time.Time) {
	if len(s.mu.lost) == 0 {
		since, s.mu.failed = s.mu.failed, time.Time{}
	}
	return since
}

// tellEnd logs the end of failures that began at since, unless that is zero.
func (s *saver) tellEnd(since, now time.Time) {
	if !since.IsZero() {
		s.h.log.Info("checkpoints are saved again", "after", now.Sub(since).Round(time.Millisecond))
	}
}

// noteLostLocked notes which rows of a group were not stored. Those of before stay noted until they are: a write of the
// group's other shares says nothing of them.
func (s *saver) noteLostLocked(w groupWrite, unstored []int, now time.Time) {
	shares := s.mu.lost[w.g]
	if countBetween(unstored, w.first, w.end) > 0 && shares == nil {
		shares = make(map[*share]time.Time)
		s.mu.lost[w.g] = shares
	}
	if shares == nil {
		return
	}
	for row := w.first; row < w.end; row++ {
		if _, lost := slices.BinarySearch(unstored, row); lost {
			shares[w.shareOf(row)] = now
		} else {
			delete(shares, w.shareOf(row))
		}
	}
	if len(shares) == 0 {
		delete(s.mu.lost, w.g)
	}
}

// lostFor is for how long a share counts as not stored that is not tried again, while other rows are not stored either.
const lostFor = time.Minute

// triedWithin is the longest time after a try in which a share is tried again while others are stored: it may wait for
// its turn, and for a round and a write of others.
func (s *saver) triedWithin() time.Duration {
	return s.h.cfg.CheckpointMost + s.h.cfg.CheckpointEvery + s.h.cfg.CallTimeout
}

// forgetLostLocked forgets shares that were not tried again for most: they, or their groups, are gone.
func (s *saver) forgetLostLocked(now time.Time, most time.Duration) {
	for g, shares := range s.mu.lost {
		maps.DeleteFunc(shares, func(_ *share, at time.Time) bool { return now.Sub(at) >= most })
		if len(shares) == 0 {
			delete(s.mu.lost, g)
		}
	}
}

// lost divides groups by whether they have rows that were not stored when they were tried last.
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
