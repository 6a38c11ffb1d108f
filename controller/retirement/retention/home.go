package retention

import (
	"time"

	"github.com/columbamq/columba/core"
)

// Sealed is a sealed extent as its home says who reads it.
type Sealed struct {
	Home  core.Home
	Ended time.Time // when its end was fixed, or its home was changed since
}

// JudgeSealed is Judge by who reads the extent: consumed is when each of those had consumed it, zero for one that has not. What was merged
// counts from the merge; what was purged goes at once; what is being staged stays.
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
