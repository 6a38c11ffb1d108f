package outputhost

import (
	"slices"
	"time"
)

// groupWrite is a group's part of a write: its rows from first to end, at first those of shares that were given away,
// and then those of the parts.
type groupWrite struct {
	g          *group
	first, end int
	parts      []saved
}

// divide tells the parts that are stored from those that may not be, and whether rows of shares that were given away
// are among the latter.
func (w groupWrite) divide(unstored []int) (stored, lost []saved, lostLate bool) {
	parts := w.end - len(w.parts) // index of the first one
	for i, p := range w.parts {
		if _, not := slices.BinarySearch(unstored, parts+i); not {
			lost = append(lost, p)
		} else {
			stored = append(stored, p)
		}
	}
	return stored, lost, countBetween(unstored, w.first, parts) > 0
}

// stored is how many of the group's rows are.
func (w groupWrite) stored(unstored []int) int {
	return w.end - w.first - countBetween(unstored, w.first, w.end)
}

// countBetween is how many of the ascending indexes are from first on and before end.
func countBetween(indexes []int, first, end int) int {
	from, _ := slices.BinarySearch(indexes, first)
	to, _ := slices.BinarySearch(indexes, end)
	return to - from
}

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
