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

// Grant gives a run of a host its share of the budget, by what it and the others need, until LeaseFor from now, in place of what it held. It
// answers how many hosts share.
func (b *Book) Grant(run core.RunID, need, budget float64, now time.Time) (amount float64, hosts int) {
	if b.holds == nil {
		b.holds = make(map[core.RunID]*hold)
	}
	h := b.holds[run]
	if h == nil {
		h = &hold{}
		b.holds[run] = h
	}
	if h.need = 0; need > 0 { // not what is no number either
		h.need = need
	}
	h.until = now.Add(LeaseFor)
	b.expire(now)
	runs := make([]core.RunID, 0, len(b.holds))
	for r := range b.holds {
		runs = append(runs, r)
	}
	slices.SortFunc(runs, func(x, y core.RunID) int { return cmp.Compare(string(x.ID[:]), string(y.ID[:])) })
	needs, left := make([]float64, len(runs)), max(budget, 0)
	for i, r := range runs {
		needs[i] = b.holds[r].need
		if r != run {
			left -= b.holds[r].amount
		}
	}
	share := Split(max(budget, 0), needs)[slices.Index(runs, run)]
	h.amount = max(0, min(share, left))
	return h.amount, len(runs)
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
