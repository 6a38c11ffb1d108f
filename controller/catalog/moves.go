package catalog

import (
	"time"

	"github.com/columbamq/columba/core"
)

// move is the way of a share from an owner that is well. The new owner is not told of the share before the old one has
// given it away, and with that has saved how far it came.
type move struct {
	from    *list
	counter uint64 // of the first list without the share
	until   time.Time
}

// moveLocked has a share wait for its old owner; not if that one has it again.
func (x *Shares) moveLocked(d *owned, m *move) {
	if d.Owner == m.from.owner {
		return
	}
	d.move = m
	m.from.leaving[d] = struct{}{}
	x.mu.moving[d] = struct{}{}
}

// endMoveLocked takes a share out of the moves; the caller raises its list.
func (x *Shares) endMoveLocked(d *owned) {
	if d.move == nil {
		return
	}
	delete(d.move.from.leaving, d)
	delete(x.mu.moving, d)
	d.move = nil
}

// givenLocked has the new owners told of the shares that a list had lost with its counter up to the one that its owner
// took.
func (x *Shares) givenLocked(l *list) {
	for d := range l.leaving {
		if d.move.counter <= l.taken {
			x.endMoveLocked(d)
			x.raiseLocked(d.list)
		}
	}
}

// EndMoves has the new owners told of the shares whose old owners have not given them away in time.
func (x *Shares) EndMoves(now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for d := range x.mu.moving {
		if now.After(d.move.until) {
			x.endMoveLocked(d)
			x.raiseLocked(d.list)
		}
	}
}

// hidden says which shares of a list its owner is not told of yet. Of a chain it is told all at once.
func (l *list) hidden() func(d *owned) bool {
	chains := make(map[core.GroupID]bool)
	for d := range l.shares {
		if d.move != nil && d.Chain > 0 {
			chains[d.Group] = true
		}
	}
	return func(d *owned) bool { return d.move != nil || d.Chain > 0 && chains[d.Group] }
}
