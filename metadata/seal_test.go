package metadata

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

func TestSealRecord_KeptFrom(t *testing.T) {
	ended := time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC)
	homed, due := ended.Add(time.Hour), ended.Add(24*time.Hour)
	timer := core.Extent{Kind: core.KindTimer}
	merged := core.MergedInto(core.QueueID{ID: core.ID{1}}, core.GroupID{ID: core.ID{2}})
	for name, c := range map[string]struct {
		row  SealRecord
		want time.Time
	}{
		"open":                 {SealRecord{State: core.ExtentSealing, Ended: ended}, time.Time{}},
		"sealed":               {SealRecord{State: core.ExtentSealed, Ended: ended}, ended},
		"merged":               {SealRecord{State: core.ExtentSealed, Ended: ended, Home: merged, Homed: homed}, homed},
		"timers":               {SealRecord{State: core.ExtentSealed, Extent: timer, Ended: ended, Due: due}, due},
		"timers, due before":   {SealRecord{State: core.ExtentSealed, Extent: timer, Ended: ended, Due: ended.Add(-time.Hour)}, ended},
		"purged timers":        {SealRecord{State: core.ExtentSealed, Extent: timer, Ended: ended, Due: due, Home: core.Home{Kind: core.HomePurged}, Homed: homed}, homed},
		"of an older build":    {SealRecord{State: core.ExtentRetiring, Changed: ended}, ended},
		"purged, and retiring": {SealRecord{State: core.ExtentRetiring, Ended: ended, Home: core.Home{Kind: core.HomePurged}, Homed: homed}, homed},
	} {
		if got := c.row.KeptFrom(); !got.Equal(c.want) {
			t.Errorf("%s: kept from %s, want %s", name, got, c.want)
		}
	}
}
