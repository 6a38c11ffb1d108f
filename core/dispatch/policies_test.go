package dispatch

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// combination is a state of each policy of a group, for one session.
type combination struct {
	paused    bool
	breaker   BreakerState
	throttled int // 0: no; 1: some messages at a time; 2: it pauses
	isolated  bool
	retries   int // 0: few; 1: some more first deliveries may fail; 2: as many as the group may have
}

// admits is how many of most messages a session gets: what the strictest policy lets go.
func (x combination) admits(most int) int {
	if x.paused || x.breaker == BreakerOpen || x.throttled == 2 || x.isolated {
		return 0
	}
	if x.breaker == BreakerHalfOpen {
		most = min(most, breakerProbes)
	}
	if x.throttled == 1 {
		most = min(most, throttledAtOnce)
	}
	return most
}

// admitsFirsts is the same of first deliveries.
func (x combination) admitsFirsts(most int) int {
	switch x.retries {
	case 1:
		most = min(most, 7)
	case 2:
		most = 0
	}
	return x.admits(most)
}

// combinations are all there are.
func combinations() (all []combination) {
	for _, paused := range []bool{false, true} {
		for _, state := range []BreakerState{BreakerClosed, BreakerHalfOpen, BreakerOpen} {
			for throttled := range 3 {
				for _, isolated := range []bool{false, true} {
					for retries := range 3 {
						all = append(all, combination{paused, state, throttled, isolated, retries})
					}
				}
			}
		}
	}
	return all
}

// set has a group that holds nothing back be in this state for session 1.
func (x combination) set(t *testing.T, g *Group, s *Share) {
	t.Helper()
	if x.isolated { // seq 1 was handed out alone
		runs := g.Take(1, Credit{Messages: 1, Bytes: 1 << 20}, start, nil)
		if len(runs) != 1 || runs[0].Base != 1 {
			t.Fatalf("got %v", runs)
		}
		g.isolation = &isolation{given: map[SessionID]messageRef{1: {s, 1}}}
	}
	if x.breaker != BreakerClosed {
		g.breaker = newBreaker(core.BreakerAlways, g.spec.LockTimeout, false)
		g.breaker.begin(g.now)
		if x.breaker == BreakerOpen {
			g.breaker.handed(breakerProbes, g.now)
		}
	}
	if x.throttled > 0 {
		g.sessions.gave(1)
		for range freeNacks + 1 {
			g.nacked(1)
		}
		if x.throttled == 2 {
			g.throttle.handed(scope{session: 1}, throttledAtOnce, g.now)
		}
	}
	switch x.retries {
	case 1:
		g.Retries(core.DefaultMaxDelayedRetries-7-uint64(g.inFlight), 1, start)
	case 2:
		g.Retries(core.DefaultMaxDelayedRetries, 1, start)
	}
	if x.paused {
		g.Want(Credit{}, false)
	}
}

// TestPolicies_Together: a session gets exactly what the strictest policy lets go, and while it gets nothing there is a
// deadline after which it may get more, unless it is somebody's turn to do something.
func TestPolicies_Together(t *testing.T) {
	const most = 50
	for _, x := range combinations() {
		t.Run(fmt.Sprintf("%+v", x), func(t *testing.T) {
			g, s := newShare(t, core.GroupSpec{LockTimeout: time.Hour}, 200)
			x.set(t, g, s)
			want := x.admits(most)
			if got := g.admit(scope{session: 1}, most); got != want {
				t.Errorf("%d of %d are admitted, want %d", got, most, want)
			}
			others := combination{paused: x.paused, breaker: x.breaker, retries: x.retries}
			if got := g.admit(scope{session: 2}, most); got != others.admits(most) {
				t.Errorf("another session: %d are admitted, want %d", got, others.admits(most))
			}
			if got := g.Ready(); got != (others.admitsFirsts(1) > 0) {
				t.Errorf("ready: %v", got)
			}
			waits := g.nextPolicy() != never
			if want := x.breaker == BreakerOpen || x.throttled == 2 || x.retries == 2; waits != want {
				t.Errorf("it has a deadline: %v, want %v", waits, want)
			}
			got := 0
			for _, r := range g.Take(1, Credit{Messages: most, Bytes: 1 << 20}, start, nil) {
				got += int(r.Count)
			}
			if want := x.admitsFirsts(most); got != want {
				t.Errorf("%d were handed out, want %d", got, want)
			}
			if err := g.check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPolicies_Deadlines: what waits for a deadline alone goes out when it comes.
func TestPolicies_Deadlines(t *testing.T) {
	for _, x := range combinations() {
		if x.paused || x.isolated || x.admitsFirsts(1) > 0 {
			continue
		}
		t.Run(fmt.Sprintf("%+v", x), func(t *testing.T) {
			g, s := newShare(t, core.GroupSpec{LockTimeout: time.Hour}, 200)
			x.set(t, g, s)
			for range 3 {
				at, ok := g.NextDeadline()
				if !ok {
					t.Fatal("there is no deadline")
				}
				g.Tick(at)
				if len(g.Take(1, Credit{Messages: 1, Bytes: 1 << 20}, at, nil)) > 0 {
					return
				}
			}
			t.Error("nothing was handed out after three deadlines")
		})
	}
}

// TestPause keeps everything back, from all sessions, and has no deadline.
func TestPause(t *testing.T) {
	for p, want := range map[pause]int{true: 0, false: math.MaxInt} {
		for _, sc := range []scope{groupScope, {session: 1}, {}} {
			if got := p.admit(sc, 0); got != want {
				t.Errorf("paused %v: admits %d, want %d", p, got, want)
			}
		}
		if waits := p.nextDeadline(0) != never; waits {
			t.Error("it has a deadline")
		}
	}
}

// TestThrottle_Policy slows down one session and no other, until it acks.
func TestThrottle_Policy(t *testing.T) {
	var x throttle
	one, two := scope{session: 1}, scope{session: 2}
	for range freeNacks {
		x.outcome(one, outcome{})
	}
	if n := x.admit(one, sec); n != math.MaxInt {
		t.Fatalf("after %d nacks %d are admitted", freeNacks, n)
	}
	x.outcome(one, outcome{})
	if n := x.admit(one, sec); n != throttledAtOnce {
		t.Fatalf("after %d nacks %d are admitted, want %d", freeNacks+1, n, throttledAtOnce)
	}
	if x.handed(one, throttledAtOnce-1, sec); x.admit(one, sec) != 1 {
		t.Errorf("of %d messages %d are handed out, and %d are admitted", throttledAtOnce, throttledAtOnce-1, x.admit(one, sec))
	}
	x.handed(one, 1, sec)
	at := x.nextDeadline(sec)
	waits := at != never
	if x.admit(one, sec) != 0 || !waits || at != sec+int64(minThrottlePause) || x.admit(one, at) != throttledAtOnce {
		t.Errorf("it waits %v, until %s", waits, time.Duration(at-sec))
	}
	if x.admit(two, sec) != math.MaxInt || x.admit(groupScope, sec) != math.MaxInt {
		t.Error("others are slowed down, too")
	}
	x.outcome(one, outcome{successes: 1})
	if waits := x.nextDeadline(sec) != never; waits || x.admit(one, sec) != math.MaxInt {
		t.Error("an ack did not end it")
	}
}

// TestClaim is bounded, and in a group that delivers at most once there is one at a time.
func TestClaim(t *testing.T) {
	for _, x := range []struct {
		waiting int
		alone   bool
		most    int
		want    int
	}{
		{0, false, 7, 7}, {0, false, 10_000, claimAtOnce}, {0, true, 7, 7}, {0, true, 10_000, claimAtOnce}, {1, true, 7, 0},
		{1, false, 7, 7}, {1, false, 10_000, claimAtOnce - 1}, {claimAtOnce - 3, false, 7, 3}, {claimAtOnce, false, 7, 0}, {claimAtOnce + 1, false, 7, 0},
	} {
		if got := (claim{x.waiting, x.alone}).admit(x.most); got != x.want {
			t.Errorf("%d of %d are admitted while %d are claimed, one at a time %v; want %d", got, x.most, x.waiting, x.alone, x.want)
		}
	}
}

// TestIsolation_Policy knows no session unless it was handed a message alone, and keeps nothing from unary pulls.
func TestIsolation_Policy(t *testing.T) {
	var none *isolation
	if waits := none.nextDeadline(0) != never; waits || none.admit(scope{session: 1}, 0) != math.MaxInt {
		t.Error("without a message it keeps something back")
	}
	g, s := newShare(t, core.GroupSpec{}, 2)
	take(g, 1, start)
	g.isolation = &isolation{given: map[SessionID]messageRef{1: {s, 1}, 0: {s, 1}}}
	for sc, want := range map[scope]int{{session: 1}: 0, {session: 2}: math.MaxInt, {}: math.MaxInt, groupScope: math.MaxInt} {
		if got := g.isolation.admit(sc, 0); got != want {
			t.Errorf("%+v: admits %d, want %d", sc, got, want)
		}
	}
	s.Ack(1, 1, 1, start, nil)
	if got := g.isolation.admit(scope{session: 1}, 0); got != math.MaxInt {
		t.Errorf("after the ack: admits %d", got)
	}
}

// TestGroup_Admits: a session that holds an isolated message takes nothing more, whatever its credit.
func TestGroup_Admits(t *testing.T) {
	g, s := newShare(t, core.GroupSpec{MaxDeliveries: 2, LockTimeout: 10 * time.Second}, 2)
	g.Connected(2)
	take(g, 1, start)
	now := start.Add(10 * time.Second)
	g.Tick(now)
	save(s, now)
	if !g.Admits(1) || !g.Admits(2) {
		t.Fatal("a session that holds nothing takes nothing")
	}
	want(t, "isolated", take(g, 10, now), "1+1@2")
	if g.Admits(1) || !g.Admits(2) || g.Throttled(1) {
		t.Errorf("admits %v, another session %v; throttled %v", g.Admits(1), g.Admits(2), g.Throttled(1))
	}
	var refused []SessionID
	g.throttle.paces = map[SessionID]pace{1: {}, 2: {}, 3: {nacks: freeNacks + 1, until: math.MaxInt64}} // each once, and 2 not
	g.EachRefused(func(id SessionID) { refused = append(refused, id) })
	if slices.Sort(refused); !slices.Equal(refused, []SessionID{1, 3}) {
		t.Errorf("refuses %v", refused)
	}
}
