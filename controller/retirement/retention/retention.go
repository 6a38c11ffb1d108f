// Package retention decides which sealed extents of a queue are removed. It has no clock and does no I/O.
package retention

import (
	"time"

	"github.com/columbamq/columba/core"
)

// Policy is how long a queue keeps its messages.
type Policy struct {
	Consumed   time.Duration // after every group has consumed them
	Unconsumed time.Duration // at most, from the end of their extent on; 0: until they are consumed
}

// Extent is what counts of a sealed extent.
type Extent struct {
	Ended  time.Time // when its end was fixed, and all of it was due; zero: not known, it stays
	Groups []Group   // every group of its queue that is not deleted: disabled, half-made and behind ones, too
}

// Group is how far one group is with an extent.
type Group struct {
	Consumed time.Time // when it had consumed the extent, in its present epoch; zero: it has not, or it is half made
}

// Verdict is what becomes of an extent.
type Verdict uint8

const (
	Keep     Verdict = iota
	Consumed         // every group has consumed it: it goes
	Expired          // it goes though a group has not consumed it, or there is none
)

// Judge an extent. An instant in the future, of a clock that is ahead, only makes it stay longer.
func (p Policy) Judge(e Extent, now time.Time) Verdict {
	if e.Ended.IsZero() {
		return Keep
	}
	expired := p.Unconsumed > 0 && now.Sub(e.Ended) > p.Unconsumed
	last, all := e.consumed()
	switch {
	case all && (expired || now.Sub(last) > p.Consumed):
		return Consumed
	case !all && expired:
		return Expired
	}
	return Keep
}

// consumed is when the last group had consumed the extent; not all when one has not, or nobody is there who could.
func (e Extent) consumed() (last time.Time, all bool) {
	last = e.Ended // a done row cannot be older than the end: its clock was behind
	for _, g := range e.Groups {
		if g.Consumed.IsZero() {
			return last, false
		}
		if g.Consumed.After(last) {
			last = g.Consumed
		}
	}
	return last, len(e.Groups) > 0
}

// MayGo reports whether an extent with that end may be due at all, whatever its groups did: those that may not need no
// look at their groups.
func (p Policy) MayGo(ended, now time.Time) bool {
	return !ended.IsZero() && now.After(p.StaysUntil(ended))
}

// StaysUntil is until when an extent with that end stays in any case.
func (p Policy) StaysUntil(ended time.Time) time.Time {
	if p.Unconsumed > 0 {
		return ended.Add(min(p.Consumed, p.Unconsumed))
	}
	return ended.Add(p.Consumed)
}

// MaxSkew is how far apart the clocks of two hosts may be while anything is retired.
const MaxSkew = time.Minute

// Trust reports whether this host's clock may decide: gaps are how far those of the hosts that answered are ahead of
// it, its own process among them, silent is how many others did not answer. One that is far off is enough to stop; so
// is hearing nobody but oneself.
func Trust(gaps []time.Duration, silent int) bool {
	for _, gap := range gaps {
		if gap > MaxSkew || gap < -MaxSkew {
			return false
		}
	}
	return len(gaps) > silent
}

// Sealed is a sealed extent as its home says who reads it.
type Sealed struct {
	Home  core.Home
	Ended time.Time // when its end was fixed, or its home was changed since
}

// JudgeSealed is Judge for the read scope of an extent: consumed has the time when each reading group had consumed it,
// zero for a group that has not. The time of a merged extent counts from the merge. A purged extent is due at once. A
// staging extent is never due.
func (p Policy) JudgeSealed(e Sealed, consumed []time.Time, now time.Time) Verdict {
	switch e.Home.Kind {
	case core.HomeStaging:
		return Keep
	case core.HomePurged:
		p.Consumed, consumed = 0, []time.Time{e.Ended}
	}
	x := Extent{Ended: e.Ended, Groups: make([]Group, len(consumed))}
	for i, at := range consumed {
		x.Groups[i].Consumed = at
	}
	return p.Judge(x, now)
}

// MayGoSealed is MayGo by who reads the extent.
func (p Policy) MayGoSealed(e Sealed, now time.Time) bool {
	return e.Home.Kind == core.HomePurged || p.MayGo(e.Ended, now)
}
