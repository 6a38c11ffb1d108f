package metadata

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
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

func TestSealRecord_Gone(t *testing.T) {
	var w acklevel.Window
	w.AckRange(3, 4)
	b, _ := w.Append(nil)
	r := SealRecord{L: 10, Removed: b, RemovedCount: 4}
	if gone, err := r.Gone(); err != nil || gone.Done(2) || !gone.Done(3) || !gone.Done(6) || gone.Done(7) {
		t.Errorf("gone is %+v, %v", gone, err)
	}
	if n := r.Remaining(); n != 6 {
		t.Errorf("%d remain, want 6", n)
	}
	if gone, err := (SealRecord{L: 10}).Gone(); err != nil || gone.Top() != 0 {
		t.Errorf("of one of which nothing was removed %+v is gone, %v", gone, err)
	}
	for name, damaged := range map[string][]byte{"cut off": b[:len(b)-1], "too long": append(b, 0)} {
		if _, err := (SealRecord{Removed: damaged}).Gone(); err == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
}
