package retention

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

func TestJudgeSealed(t *testing.T) {
	p := Policy{Consumed: 24 * time.Hour, Unconsumed: 72 * time.Hour}
	merged := core.MergedInto(core.QueueID{ID: core.ID{1}}, core.GroupID{ID: core.ID{2}})
	purged, staging := core.Home{Kind: core.HomePurged}, core.Home{Kind: core.HomeStaging}
	for name, c := range map[string]struct {
		home     core.Home
		ended    time.Time
		consumed []time.Time
		want     Verdict
	}{
		"its own, consumed long ago":    {core.Home{}, ago(30 * time.Hour), []time.Time{ago(25 * time.Hour)}, Consumed},
		"merged, consumed long ago":     {merged, ago(30 * time.Hour), []time.Time{ago(25 * time.Hour)}, Consumed},
		"merged, consumed lately":       {merged, ago(30 * time.Hour), []time.Time{ago(time.Hour)}, Keep},
		"merged, its group is behind":   {merged, ago(30 * time.Hour), []time.Time{{}}, Keep},
		"merged, behind for too long":   {merged, ago(73 * time.Hour), []time.Time{{}}, Expired},
		"purged a moment ago":           {purged, ago(time.Second), []time.Time{{}}, Consumed},
		"purged, nobody was there":      {purged, ago(time.Second), nil, Consumed},
		"purged by a clock that is off": {purged, day.Add(time.Hour), nil, Keep},
		"staging, for ever":             {staging, ago(1000 * time.Hour), nil, Keep},
	} {
		e := Sealed{c.home, c.ended}
		got := p.JudgeSealed(e, c.consumed, day)
		if got != c.want {
			t.Errorf("%s: verdict %d, want %d", name, got, c.want)
		}
		if got != Keep && !p.MayGoSealed(e, day) {
			t.Errorf("%s: it goes, and was not looked at", name)
		}
	}
}
