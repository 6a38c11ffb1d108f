package retention

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/columbamq/columba/core"
)

var day = time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return day.Add(-d) }

func TestJudge(t *testing.T) {
	p := Policy{Consumed: 24 * time.Hour, Unconsumed: 72 * time.Hour}
	done, behind := Group{Consumed: ago(25 * time.Hour)}, Group{}
	for name, c := range map[string]struct {
		policy Policy
		ended  time.Time
		groups []Group
		want   Verdict
	}{
		"consumed long ago":               {p, ago(30 * time.Hour), []Group{done, done}, Consumed},
		"consumed lately":                 {p, ago(30 * time.Hour), []Group{done, {ago(24 * time.Hour)}}, Keep},
		"one behind":                      {p, ago(30 * time.Hour), []Group{done, behind}, Keep},
		"one behind for too long":         {p, ago(73 * time.Hour), []Group{done, behind}, Expired},
		"at the very end":                 {p, ago(72 * time.Hour), []Group{done, behind}, Keep},
		"no group":                        {p, ago(71 * time.Hour), nil, Keep},
		"no group for too long":           {p, ago(73 * time.Hour), nil, Expired},
		"consumed lately, but old":        {p, ago(73 * time.Hour), []Group{{ago(time.Hour)}}, Consumed},
		"end not known":                   {p, time.Time{}, []Group{done}, Keep},
		"done by a clock that is behind":  {p, ago(time.Hour), []Group{done}, Keep},
		"done by a clock that is ahead":   {p, ago(30 * time.Hour), []Group{{day.Add(time.Hour)}}, Keep},
		"sealed by a clock that is ahead": {p, day.Add(time.Hour), []Group{done}, Keep},
		"at once":                         {Policy{0, p.Unconsumed}, ago(time.Second), []Group{{ago(time.Second)}}, Consumed},
		"unconsumed for ever":             {Policy{p.Consumed, 0}, ago(10000 * time.Hour), []Group{behind}, Keep},
		"nobody there, for ever":          {Policy{p.Consumed, 0}, ago(10000 * time.Hour), nil, Keep},
	} {
		if got := c.policy.Judge(Extent{c.ended, c.groups}, day); got != c.want {
			t.Errorf("%s: verdict %d, want %d", name, got, c.want)
		}
	}
}

// TestJudge_Properties: nothing goes early, another group or a later instant never makes an extent go sooner, and what
// stays does not for ever.
func TestJudge_Properties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		span := rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.IntRange(0, 200).Draw(t, "hours")) * time.Hour
		})
		instant := rapid.Custom(func(t *rapid.T) time.Time { return ago(span.Draw(t, "ago") - 50*time.Hour) })
		group := rapid.Custom(func(t *rapid.T) Group {
			if rapid.Bool().Draw(t, "behind") {
				return Group{}
			}
			return Group{instant.Draw(t, "done")}
		})
		p := Policy{span.Draw(t, "consumed"), span.Draw(t, "unconsumed")}
		e := Extent{instant.Draw(t, "ended"), rapid.SliceOfN(group, 0, 4).Draw(t, "groups")}
		got := p.Judge(e, day)
		behind := len(e.Groups) == 0 || slices.ContainsFunc(e.Groups, func(g Group) bool { return g.Consumed.IsZero() })
		age := day.Sub(e.Ended)
		switch {
		case got != Keep && !p.MayGo(e.Ended, day):
			t.Fatalf("it goes, and was not looked at")
		case got == Expired && (!behind || p.Unconsumed == 0 || age <= p.Unconsumed):
			t.Fatalf("expired at %s of %s, behind %v", age, p.Unconsumed, behind)
		case got == Consumed && behind:
			t.Fatalf("consumed, with a group that has not")
		case got == Consumed && age <= p.Consumed && (p.Unconsumed == 0 || age <= p.Unconsumed):
			t.Fatalf("consumed at %s", age)
		}
		lagging := Extent{e.Ended, append(slices.Clone(e.Groups), Group{})}
		if len(e.Groups) > 0 && got == Keep && p.Judge(lagging, day) != Keep {
			t.Fatal("a group that is behind made it go")
		}
		if p.Judge(lagging, day) == Consumed {
			t.Fatal("consumed, with a group that is behind")
		}
		if got != Keep && p.Judge(e, day.Add(time.Hour)) != got {
			t.Fatal("an hour later it stays")
		}
		if later := day.Add(1000 * time.Hour); p.Judge(e, later) == Keep && (!behind || p.Unconsumed > 0) {
			t.Fatal("it stays for ever")
		}
	})
}

func TestTrust(t *testing.T) {
	for name, c := range map[string]struct {
		gaps   []time.Duration
		silent int
		want   bool
	}{
		"alone":               {[]time.Duration{0}, 0, true},
		"nobody":              {nil, 0, false},
		"all agree":           {[]time.Duration{0, time.Second, -59 * time.Second}, 1, true},
		"one is ahead":        {[]time.Duration{0, 61 * time.Second, 0}, 0, false},
		"one is behind":       {[]time.Duration{0, -61 * time.Second}, 0, false},
		"only oneself":        {[]time.Duration{0}, 2, false},
		"half do not answer":  {[]time.Duration{0, 0}, 2, false},
		"fewer do not answer": {[]time.Duration{0, 0, 0}, 2, true},
	} {
		if got := Trust(c.gaps, c.silent); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

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
