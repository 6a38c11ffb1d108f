package core_test

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestGroupSpec_Defaults(t *testing.T) {
	want := core.GroupSpec{
		Start: core.Start{Mode: core.StartLatest}, LockTimeout: time.Minute, MaxDeliveries: 10, Breaker: core.BreakerAlways,
		Exhausted: core.ExhaustedDLQ, Delivery: core.AtLeastOnce, Expired: core.ExpiredDrop, Status: core.StatusEnabled,
		MaxDelayedRetries: core.DefaultMaxDelayedRetries,
	}
	got := core.GroupSpec{}.WithDefaults()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := got.Validate(); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
}

func TestGroupSpec_Validate(t *testing.T) {
	ok := core.GroupSpec{MaxDeliveries: core.UnlimitedDeliveries, LockTimeout: core.MaxLockTimeout, Backoff: core.Backoff{Min: 1, Factor: 1, Max: 1}}
	if err := ok.WithDefaults().Validate(); err != nil {
		t.Errorf("got %v", err)
	}
	for name, change := range map[string]func(*core.GroupSpec){
		"short lock":      func(g *core.GroupSpec) { g.LockTimeout = core.MinLockTimeout - 1 },
		"long lock":       func(g *core.GroupSpec) { g.LockTimeout = core.MaxLockTimeout + 1 },
		"deliveries":      func(g *core.GroupSpec) { g.MaxDeliveries = -2 },
		"many deliveries": func(g *core.GroupSpec) { g.MaxDeliveries = core.MaxMaxDeliveries + 1 },
		"breaker":         func(g *core.GroupSpec) { g.Breaker = -2 },
		"large breaker":   func(g *core.GroupSpec) { g.Breaker = core.BreakerAlways + 1 },
		"few retries":     func(g *core.GroupSpec) { g.MaxDelayedRetries = core.MinMaxDelayedRetries - 1 },
		"many retries":    func(g *core.GroupSpec) { g.MaxDelayedRetries = core.MaxMaxDelayedRetries + 1 },
		"delay":           func(g *core.GroupSpec) { g.Delay = -1 },
		"long delay":      func(g *core.GroupSpec) { g.Delay = core.MaxGroupDelay + 1 },
		"skip older":      func(g *core.GroupSpec) { g.SkipOlder = -1 },
		"skip all":        func(g *core.GroupSpec) { g.Delay, g.SkipOlder = time.Minute, time.Minute },
		"skip very old":   func(g *core.GroupSpec) { g.SkipOlder = core.MaxRetention + 1 },
		"exhausted":       func(g *core.GroupSpec) { g.Exhausted = "explode" },
		"expired":         func(g *core.GroupSpec) { g.Expired = "block" },
		"expired in a dlq": func(g *core.GroupSpec) {
			g.Queue, g.Exhausted, g.Expired = "/a/b/g.dlq", core.ExhaustedBlock, core.ExpiredDLQ
		},
		"delivery":       func(g *core.GroupSpec) { g.Delivery = "twice" },
		"status":         func(g *core.GroupSpec) { g.Status = "asleep" },
		"start":          func(g *core.GroupSpec) { g.Start.Mode = "middle" },
		"start time":     func(g *core.GroupSpec) { g.Start = core.Start{Mode: core.StartTime} },
		"backoff order":  func(g *core.GroupSpec) { g.Backoff = core.Backoff{Min: 2, Factor: 1, Max: 1} },
		"backoff factor": func(g *core.GroupSpec) { g.Backoff = core.Backoff{Min: 1, Factor: 0.5, Max: 2} },
		"backoff jitter": func(g *core.GroupSpec) { g.Backoff = core.Backoff{Min: 1, Factor: 1, Max: 2, Jitter: 1.5} },
		"backoff max":    func(g *core.GroupSpec) { g.Backoff = core.Backoff{Min: 1, Factor: 1, Max: core.MaxNackDelay + 1} },
	} {
		g := core.GroupSpec{}.WithDefaults()
		change(&g)
		if err := g.Validate(); core.CodeOf(err) != core.CodeBadArgument {
			t.Errorf("%s: got %v, want %s", name, err, core.CodeBadArgument)
		}
	}
}

func TestParseStart(t *testing.T) {
	now := time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)
	for in, want := range map[string]core.Start{
		"":                     {Mode: core.StartLatest},
		"latest":               {Mode: core.StartLatest},
		"earliest":             {Mode: core.StartEarliest},
		"-2h":                  {Mode: core.StartTime, At: now.Add(-2 * time.Hour)},
		"2026-01-02T15:04:05Z": {Mode: core.StartTime, At: time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)},
		"2026-01-02":           {Mode: core.StartTime, At: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)},
		"-1d":                  {Mode: core.StartTime, At: now.Add(-24 * time.Hour)},
	} {
		if got, err := core.ParseStart(in, now); err != nil || !cmp.Equal(got, want) {
			t.Errorf("%q: got %+v, %v, want %+v", in, got, err, want)
		}
	}
	for _, bad := range []string{"2h", "-2", "yesterday", "-", "2026-01-32", "5", "0", "999999999", "0001-01-01", "0001-01-01T00:00:00Z"} {
		if got, err := core.ParseStart(bad, now); core.CodeOf(err) != core.CodeBadArgument {
			t.Errorf("%q: got %+v, %v", bad, got, err)
		}
	}
}

func TestParseBackoff(t *testing.T) {
	for in, want := range map[string]core.Backoff{
		"1s,2,1m":      {Min: time.Second, Factor: 2, Max: time.Minute},
		"0s,1,0s,0":    {Factor: 1},
		"1s,1.5,1m,.5": {Min: time.Second, Factor: 1.5, Max: time.Minute, Jitter: 0.5},
	} {
		if got, err := core.ParseBackoff(in); err != nil || got != want {
			t.Errorf("%q: got %+v, %v", in, got, err)
		}
	}
	for _, bad := range []string{"", "1s", "1s,2", "1,2,3", "1s,x,1m", "1s,2,x", "1s,2,1m,x", "1s,2,1m,0,0", "2m,2,1m", "1s,2,13h", "1s,NaN,1m", "1s,2,1m,NaN", "1s,Inf,1m"} {
		if got, err := core.ParseBackoff(bad); core.CodeOf(err) != core.CodeBadArgument {
			t.Errorf("%q: got %+v, %v", bad, got, err)
		}
	}
}

func TestBackoff_Delay(t *testing.T) {
	b := core.Backoff{Min: time.Second, Factor: 2, Max: 10 * time.Second}
	for attempt, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 4: 8 * time.Second, 5: 10 * time.Second, 1000: 10 * time.Second} {
		if got := b.Delay(attempt, 0.7); got != want {
			t.Errorf("attempt %d: got %s, want %s", attempt, got, want)
		}
	}
	b.Jitter = 0.2
	for random, want := range map[float64]time.Duration{0: 8 * time.Second, 0.5: 9 * time.Second, 0.999999999999: 10 * time.Second} {
		if got := b.Delay(1000, random); got.Round(time.Microsecond) != want {
			t.Errorf("at the cap with a jitter, random %g: got %s, want %s", random, got, want)
		}
	}
	if got := (core.Backoff{}).Delay(3, 0.9); got != 0 {
		t.Errorf("the zero backoff waits %s", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		b := core.Backoff{
			Min:    time.Duration(rapid.Int64Range(0, int64(core.MaxNackDelay)).Draw(t, "min")),
			Factor: rapid.Float64Range(1, 100).Draw(t, "factor"),
			Jitter: rapid.Float64Range(0, 1).Draw(t, "jitter"),
		}
		b.Max = time.Duration(rapid.Int64Range(int64(b.Min), int64(core.MaxNackDelay)).Draw(t, "max"))
		attempt := rapid.IntRange(1, 70000).Draw(t, "attempt")
		got := b.Delay(attempt, rapid.Float64Range(0, 0.999999).Draw(t, "random"))
		if got < 0 || got > b.Max {
			t.Fatalf("%+v: attempt %d waits %s", b, attempt, got)
		}
	})
}

func TestGroupSpec_OnADeadLetterQueue(t *testing.T) {
	g := core.GroupSpec{Queue: core.DLQPath("/t/a", "g"), Name: "sift"}.WithDefaults()
	if g.Exhausted != core.ExhaustedBlock || g.Validate() != nil || !g.OnDLQ() {
		t.Errorf("%+v: %v", g, g.Validate())
	}
	for _, e := range []core.Exhausted{core.ExhaustedDLQ, core.ExhaustedDrop} {
		g.Exhausted = e
		if err := g.Validate(); core.CodeOf(err) != core.CodeBadArgument {
			t.Errorf("%s: got %v", e, err)
		}
	}
	if (core.GroupSpec{Queue: "/t/a"}).OnDLQ() {
		t.Error("a queue of a user is no dead letter queue")
	}
}
