package metadata

import (
	"bytes"
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
	// Every second message, as bits: in memory a window takes up to 64 times as much, and no row has more than MaxValue.
	many := append([]byte{0, 1, 0, 0x80, 0x80, 0x40}, bytes.Repeat([]byte{0x55}, 1<<20)...)
	if _, err := (SealRecord{Removed: many}).Gone(); core.CodeOf(err) != core.CodeCorrupt {
		t.Errorf("%d bytes are taken, %v", len(many), err)
	}
}

// TestSealRecord_GiveUp takes lost records out of an extent, beside those that selections took of it. Given-up records
// stay given up.
func TestSealRecord_GiveUp(t *testing.T) {
	now := time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC)
	row := SealRecord{State: core.ExtentSealed, L: 10, Version: 3, Home: core.Home{Kind: core.HomeOwn}}
	var taken acklevel.Window
	taken.Ack(2)
	taken.Ack(9)
	row.Removed, _ = taken.Append(nil)
	row.RemovedCount = 2
	for _, step := range []struct{ from, lostFrom, remaining core.Seq }{{8, 8, 6}, {9, 8, 6}, {4, 4, 2}, {1, 1, 0}} {
		version := row.Version
		if err := row.GiveUp(step.from, uint32(100+step.from), now); err != nil {
			t.Fatal(err)
		}
		if last, sum, some := row.HeldTo(); some != (step.lostFrom > 1) || some && (last != step.lostFrom-1 || sum != uint32(100+step.lostFrom)) {
			t.Errorf("from %d on: holders have it up to %d (%d), %v", step.from, last, sum, some)
		}
		if row.LostFrom != step.lostFrom || row.Remaining() != step.remaining || row.Version != version+1 || row.L != 10 {
			t.Errorf("from %d on: %+v, want it lost from %d on, and %d to remain", step.from, row, step.lostFrom, step.remaining)
		}
		if purged := row.Home.Kind == core.HomePurged; purged != (step.remaining == 0) {
			t.Errorf("from %d on: its home is %s", step.from, row.Home)
		}
	}
	gone, err := row.Gone()
	if err != nil || gone.Frontier() != 10 || gone.Above() != 0 {
		t.Errorf("gone: %v, %v", gone, err)
	}
}
