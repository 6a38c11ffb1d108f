package outputhost

import (
	"slices"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
)

// saveLine has the shares of all groups whose changes nobody waits for, in the order in which they changed. Such a
// share is due with the next round. Shares that the budget of rows leaves over stay at the head of the line. Each
// change of the line takes the same time, however many shares there are, and a share without changes costs nothing but
// its place. Safe for concurrent use; its mutex is taken within that of a group.
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

// take appends the shares that are to be saved now, oldest first: so many of those that are due, and all that have
// waited for most. It answers how many are due still, and how long it is until the first of them will have waited for
// most.
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

// rowsOf is a host's part of a budget of rows a second that all output hosts share. The parts add up to the budget, but
// each host has one row at least.
func rowsOf(budget int, hosts []membership.Host, self core.HostID) int {
	before := 0
	known := false
	for _, h := range hosts {
		known = known || h.ID == self
		if h.ID < self {
			before++
		}
	}
	n := len(hosts)
	if !known {
		n++
	}
	part := budget / n
	if before < budget%n {
		part++
	}
	return max(part, 1)
}

// rowWindow counts the rows that were written in the last second, so that no second has more than the budget. A token
// bucket would not do: one that lets the round of a second pass in one write lets as many pass in the next moment.
//
// Urgent rows are counted for a tenth of a second longer: as many as the last tenth had may come in the next one.
type rowWindow struct {
	writes     []rowWrite // oldest first
	aged       int        // of those, how many count with their urgent rows only
	rows, kept int        // of the others, and urgent ones of all
}

type rowWrite struct {
	at           time.Duration
	rows, urgent int // the others, and the urgent ones
}

const (
	rowSecond = time.Second
	rowUrgent = rowSecond + 100*time.Millisecond
	// rowGrain is how close to each other two writes count as one, so that the window has few of them.
	rowGrain = 10 * time.Millisecond
)

// room is how many more rows that are not urgent may be written now. It is below zero after more than the budget were.
func (w *rowWindow) room(budget int, now time.Duration) int {
	for w.aged < len(w.writes) && now-w.writes[w.aged].at >= rowSecond {
		w.rows -= w.writes[w.aged].rows
		w.aged++
	}
	over := 0
	for over < w.aged && now-w.writes[over].at >= rowUrgent {
		w.kept -= w.writes[over].urgent
		over++
	}
	w.writes, w.aged = slices.Delete(w.writes, 0, over), w.aged-over
	return budget - w.rows - w.kept
}

// next is how long it takes until there may be more room, after room was asked.
func (w *rowWindow) next(now time.Duration) time.Duration {
	next := rowSecond
	if w.aged > 0 {
		next = min(next, w.writes[0].at+rowUrgent-now)
	}
	if w.aged < len(w.writes) {
		next = min(next, w.writes[w.aged].at+rowSecond-now)
	}
	return max(next, rowGrain)
}

// spend counts rows that are written now; so many of them are urgent.
func (w *rowWindow) spend(rows, urgent int, now time.Duration) {
	if rows == 0 {
		return
	}
	urgent = min(urgent, rows)
	w.rows += rows - urgent
	w.kept += urgent
	if n := len(w.writes); n > w.aged && now-w.writes[n-1].at < rowGrain {
		w.writes[n-1].rows += rows - urgent
		w.writes[n-1].urgent += urgent
		return
	}
	w.writes = append(w.writes, rowWrite{at: now, rows: rows - urgent, urgent: urgent})
}
