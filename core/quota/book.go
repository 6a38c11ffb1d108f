package quota

import (
	"cmp"
	"slices"
	"time"

	"github.com/columbamq/columba/core"
)

const (
	// LeaseFor is how long a share holds that is not renewed.
	LeaseFor = 5 * time.Second
	// RenewEvery is how often hosts ask.
	RenewEvery = time.Second
)

// Book has the parts of one budget that hosts hold. The parts that are not over never add up to more than the budget
// had when the last part was given: a host gets more only when others hold less, or when their parts are over.
type Book struct {
	holds map[core.RunID]*hold
}

type hold struct {
	need, amount float64
	until        time.Time
}

// Ask is a host's question for its share of a budget.
type Ask struct {
	Run  core.RunID
	Need float64
	// Unheard are the runs of hosts that may hold parts which another book gave. A run that has asked this book counts as
	// heard. Nil: this book gave all parts.
	Unheard []core.RunID
	Held    float64 // the part that the run holds by its own account; it counts only beside unheard ones, and for Keeps
	Keeps   bool    // the run gets no more than it holds: the budget is not known, but for its most
}

// Grant gives a run of a host its share of the budget, by what it and the others need, until LeaseFor from now, in
// place of what it held. It answers how many hosts share.
//
// Beside unheard runs a run keeps what it holds, and gets an equal part if it needs more than it holds, or holds
// nothing. Together with what those hold that may be more than the budget.
func (b *Book) Grant(a Ask, budget float64, now time.Time) (amount float64, hosts int) {
	if b.holds == nil {
		b.holds = make(map[core.RunID]*hold)
	}
	h := b.holds[a.Run]
	if h == nil {
		h = &hold{}
		b.holds[a.Run] = h
	}
	if h.need = 0; a.Need > 0 { // not what is no number either
		h.need = a.Need
	}
	h.until = now.Add(LeaseFor)
	b.expire(now)
	runs := make([]core.RunID, 0, len(b.holds))
	for r := range b.holds {
		runs = append(runs, r)
	}
	slices.SortFunc(runs, func(x, y core.RunID) int { return cmp.Compare(string(x.ID[:]), string(y.ID[:])) })
	budget = max(budget, 0)
	needs, left := make([]float64, len(runs)), budget
	for i, r := range runs {
		needs[i] = b.holds[r].need
		if r != a.Run {
			left -= b.holds[r].amount
		}
	}
	share, held := Split(budget, needs)[slices.Index(runs, a.Run)], 0.0
	if a.Held > 0 { // not what is no number either
		held = a.Held
	}
	if unheard := b.unheard(a.Unheard); unheard > 0 {
		share = budget / float64(len(runs)+unheard)
		if held > 0 {
			share = max(held, min(share, h.need))
		}
	}
	if a.Keeps {
		share = min(share, held)
	}
	h.amount = max(0, min(share, left))
	return h.amount, len(runs)
}

// unheard is how many of some runs have not asked.
func (b *Book) unheard(runs []core.RunID) (n int) {
	for _, r := range runs {
		if b.holds[r] == nil {
			n++
		}
	}
	return n
}

// Held is what is held and not over.
func (b *Book) Held(now time.Time) (sum float64) {
	b.expire(now)
	for _, h := range b.holds {
		sum += h.amount
	}
	return sum
}

func (b *Book) expire(now time.Time) {
	for r, h := range b.holds {
		if !now.Before(h.until) {
			delete(b.holds, r)
		}
	}
}
