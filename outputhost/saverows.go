package outputhost

import (
	"slices"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
)

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
