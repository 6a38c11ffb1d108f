package faulty

import (
	"math/rand/v2"
	"time"

	"github.com/columbamq/columba/metadata"
)

const replicas = 3

// all is the consistency of Whole: all replicas are asked and told.
const all = metadata.Serial + 1

// row is one row of Replicas. Those of Put tables have no decided version.
type row struct {
	copies  [replicas]replica
	decided version // the last change of a CAS row
	pending bool    // no replica has been told of decided yet
}

// replica is what one replica has of a row, and the versions that are on their way to it.
type replica struct {
	has    version
	coming []arrival
}

type arrival struct {
	version
	at time.Time
}

// version is a row's cell. Versions of CAS rows are ordered by order, those of Put rows by their cells.
type version struct {
	cell  metadata.Cell
	order uint64
}

// newer is the version that stays when both meet on a replica.
func newer(a, b version) version {
	if a.order != b.order {
		if a.order > b.order {
			return a
		}
		return b
	}
	if a.order == 0 && b.cell.Wins(a.cell) {
		return b
	}
	return a
}

// acknowledging is how many replicas a call at that consistency waits for.
func acknowledging(c metadata.Consistency) int {
	switch c {
	case metadata.One, oneApart:
		return 1
	case all:
		return replicas
	}
	return replicas/2 + 1
}

// at is what the replica has at now.
func (p *replica) at(now time.Time) version {
	kept := p.coming[:0]
	for _, a := range p.coming {
		if a.at.After(now) {
			kept = append(kept, a)
		} else {
			p.has = newer(p.has, a.version)
		}
	}
	p.coming = kept
	return p.has
}

func (p *replica) learn(v version) { p.has = newer(p.has, v) }

// repair gives all replicas the newest version.
func (w *row) repair() {
	last := w.decided
	for _, p := range w.copies {
		last = newer(last, p.has)
		for _, a := range p.coming {
			last = newer(last, a.version)
		}
	}
	for i := range w.copies {
		w.copies[i] = replica{has: last}
	}
	w.pending = false
}

// order is the order in which a call asks the replicas.
func order(die *rand.Rand) (order [replicas]int) {
	for i, n := range die.Perm(replicas) {
		order[i] = n
	}
	return order
}

// readLocked is what a reader sees; it repairs the replicas that were asked, but for readers of Whole. Serial reads of
// CAS rows are of what is decided.
func (r *cells) readLocked(t metadata.Table, w *row, c metadata.Consistency, order [replicas]int, now time.Time) metadata.Cell {
	if c == metadata.Serial && t.Rule == metadata.RuleCAS {
		r.finishLocked(t, w)
		return w.decided.cell
	}
	if c == all && t.Rule == metadata.RuleCAS {
		return w.decided.cell
	}
	asked := order[:acknowledging(c)]
	var last version
	for _, i := range asked {
		last = newer(last, w.copies[i].at(now))
	}
	if c != all {
		for _, i := range asked {
			w.copies[i].learn(last)
		}
	}
	return last.cell
}

// finishLocked tells the replicas of a change of a CAS row that is decided.
func (r *cells) finishLocked(t metadata.Table, w *row) {
	if w.pending {
		w.pending = false
		r.spreadLocked(t, w, w.decided, metadata.Serial)
	}
}

// spreadLocked brings a version to as many replicas at once as a call at c waits for, and to the others by the chances
// of the divergence.
func (r *cells) spreadLocked(t metadata.Table, w *row, v version, c metadata.Consistency) {
	now, die, sure := time.Now(), r.dieLocked(t, false), acknowledging(c)
	for n, i := range r.orderLocked(c, die) {
		if c != all && r.mu.cut && (i == last) != (c == oneApart) {
			continue
		}
		p := &w.copies[i]
		p.at(now)
		chance := die.Float64()
		switch {
		case n < sure || chance >= r.divergence.Late+r.divergence.Never:
			p.learn(v)
		case chance < r.divergence.Late:
			p.coming = append(p.coming, arrival{v, now.Add(1 + time.Duration(die.Int64N(max(int64(r.divergence.Delay), 1))))})
		}
	}
}
