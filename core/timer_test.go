package core_test

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

func TestHorizonOf_IsTheNearestThatReaches(t *testing.T) {
	ms := func(d time.Duration) int64 { return d.Milliseconds() }
	for _, c := range []struct {
		ahead int64
		want  core.Horizon
	}{
		{1, core.HorizonHour}, {ms(time.Hour), core.HorizonHour}, {ms(time.Hour) + 1, core.HorizonDay}, {ms(24 * time.Hour), core.HorizonDay},
		{ms(24*time.Hour) + 1, core.HorizonMonth}, {ms(30 * 24 * time.Hour), core.HorizonMonth}, {ms(30*24*time.Hour) + 1, core.HorizonYear},
		{ms(core.MaxAhead), core.HorizonYear}, {ms(core.MaxAhead) + 1, ""}, {1 << 62, ""},
	} {
		i, ok := core.HorizonOf(c.ahead)
		if ok != (c.want != "") || ok && core.HorizonAt(i) != c.want {
			t.Errorf("%d ms ahead: horizon %d, %v; want %q", c.ahead, i, ok, c.want)
		}
		if ok && c.ahead > ms(core.HorizonAt(i).Reach()) {
			t.Errorf("%d ms ahead is beyond the reach of %s", c.ahead, core.HorizonAt(i))
		}
	}
	if got := core.Horizon("10y").Reach(); got != core.MaxAhead {
		t.Errorf("a horizon that this build does not know reaches %s, want as far as anything may", got)
	}
}

func TestCheckKind(t *testing.T) {
	for i := range core.Horizons {
		if err := core.CheckKind(core.KindTimer, core.HorizonAt(i)); err != nil {
			t.Error(err)
		}
	}
	if err := core.CheckKind(core.KindLog, ""); err != nil {
		t.Error(err)
	}
	for _, bad := range []struct {
		kind core.ExtentKind
		h    core.Horizon
	}{{core.KindLog, core.HorizonDay}, {core.KindTimer, ""}, {core.KindTimer, "2d"}, {"tape", ""}, {"", ""}} {
		if err := core.CheckKind(bad.kind, bad.h); core.CodeOf(err) != core.CodeUnsupported {
			t.Errorf("kind %q with horizon %q: %v, want unsupported", bad.kind, bad.h, err)
		}
	}
}

func TestCheckAhead_AYear(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, due := range []time.Time{{}, now, now.AddDate(1, 0, 0), now.Add(core.MaxAhead)} {
		if err := core.CheckAhead(due, now); err != nil {
			t.Errorf("%s: %v", due, err)
		}
	}
	for _, due := range []time.Time{now.Add(core.MaxAhead + 1), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)} {
		if err := core.CheckAhead(due, now); core.CodeOf(err) != core.CodeBadArgument {
			t.Errorf("%s: %v, want a bad argument", due, err)
		}
	}
}
