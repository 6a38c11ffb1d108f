package outputhost

import (
	"sync"
	"time"
)

// saveLine has the shares of all groups whose changes nobody waits for, in the order in which they changed. Such a share
// is due with the next round. Shares that the budget of rows leaves over stay at the head of the line. Each change of the
// line takes the same time, however many shares there are, and a share without changes costs nothing but its place. Safe
// for concurrent use; its mutex is taken within that of a group.
type saveLine struct {
	mu      sync.Mutex
	entries []lineEntry // from head on
	head    int
	base    uint32 // place of entries[0]; places wrap around
	round   int    // entries before this index are due
	count   int    // shares
	due     int    // of those, how many are due
}

type lineEntry struct {
	s     *share // nil: it left the line
	since time.Duration
}

// add puts a share at the end, unless it has a place. A place of a share is that of its entry, and one; 0 is none.
func (l *saveLine) add(s *share, now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.place != 0 {
		return
	}
	if l.head > len(l.entries)/2 {
		n := copy(l.entries, l.entries[l.head:])
		clear(l.entries[n:])
		l.entries, l.base, l.round, l.head = l.entries[:n], l.base+uint32(l.head), max(0, l.round-l.head), 0
	}
	if l.base+uint32(len(l.entries))+1 == 0 {
		l.entries = append(l.entries, lineEntry{})
		l.skipLocked()
	}
	l.entries = append(l.entries, lineEntry{s, now})
	l.count++
	s.place = l.base + uint32(len(l.entries))
}

// remove takes a share's place away, if it has one.
func (l *saveLine) remove(s *share) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.place != 0 {
		l.removeLocked(int(s.place - 1 - l.base))
	}
}

func (l *saveLine) removeLocked(i int) {
	l.entries[i].s.place, l.entries[i].s = 0, nil
	l.count--
	if i < l.round {
		l.due--
	}
	l.skipLocked()
}

// skipLocked keeps the head at a share.
func (l *saveLine) skipLocked() {
	for l.head < len(l.entries) && l.entries[l.head].s == nil {
		l.head++
	}
}

// begin has all shares due that are in the line now.
func (l *saveLine) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.round, l.due = len(l.entries), l.count
}

// take appends the shares that are to be saved now, oldest first: so many of those that are due, and all that have waited
// for most. It answers how many are due still, and how long it is until the first of them will have waited for most.
func (l *saveLine) take(out []*share, room int, most, now time.Duration) (_ []*share, left int, next time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := 0; l.due > 0; n++ {
		first := l.entries[l.head]
		if waited := now - first.since; n >= room && waited < most {
			return out, l.due, most - waited
		}
		out = append(out, first.s)
		l.removeLocked(l.head)
	}
	return out, 0, most
}

// waiting is how many shares are due that wait for the budget, and how long the first of the line has waited.
func (l *saveLine) waiting(now time.Duration) (due int, oldest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count > 0 {
		oldest = max(0, now-l.entries[l.head].since)
	}
	return l.due, oldest
}
