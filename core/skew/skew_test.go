package skew

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/columbamq/columba/core"
)

func TestJudge(t *testing.T) {
	const h, s = time.Hour, time.Second
	for _, x := range []struct {
		name  string
		ahead []time.Duration
		want  []State
	}{
		{"nobody", nil, nil},
		{"one alone", []time.Duration{h}, []State{Right}},
		{"two that agree", []time.Duration{0, 2 * s}, []State{Right, Right}},
		{"two that differ", []time.Duration{0, h}, []State{Doubtful, Doubtful}},
		{"one of three is ahead", []time.Duration{0, h, 0}, []State{Right, Wrong, Right}},
		{"one of three is behind", []time.Duration{0, 0, -h}, []State{Right, Right, Wrong}},
		{"the one that reads is wrong", []time.Duration{0, h, h}, []State{Wrong, Right, Right}},
		{"one of three is a bit ahead", []time.Duration{0, 10 * s, 0}, []State{Right, Doubtful, Right}},
		{"three that all differ", []time.Duration{0, h, 2 * h}, []State{Doubtful, Right, Doubtful}},
		{"two against two", []time.Duration{0, 0, h, h}, []State{Doubtful, Doubtful, Doubtful, Doubtful}},
		{"one of four", []time.Duration{0, 0, h, 0}, []State{Right, Right, Wrong, Right}},
		{"two of five", []time.Duration{0, -h, 0, h, 0}, []State{Right, Wrong, Right, Wrong, Right}},
	} {
		readings := map[core.HostID]Reading{}
		for i, a := range x.ahead {
			readings[core.HostID(fmt.Sprint(i))] = Reading{Ahead: a, Within: s}
		}
		for id, v := range Judge(readings, 0, nil) {
			var i int
			fmt.Sscan(string(id), &i)
			if v.State != x.want[i] {
				t.Errorf("%s: clock %s is %+v, want state %d", x.name, id, v, x.want[i])
			}
		}
	}
}

// TestJudge_Majority: while more than half of the clocks agree, each of them is right and each that is far off is
// wrong, whoever reads them and however vague he does.
func TestJudge_Majority(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(3, 12).Draw(t, "hosts")
		odd := rapid.IntRange(0, (n-1)/2).Draw(t, "odd")
		reader := time.Duration(rapid.Int64Range(int64(-24*time.Hour), int64(24*time.Hour)).Draw(t, "reader"))
		readings, off := map[core.HostID]Reading{}, map[core.HostID]time.Duration{}
		for i := range n {
			id := core.HostID(fmt.Sprint(i))
			off[id] = time.Duration(rapid.Int64Range(int64(-time.Second), int64(time.Second)).Draw(t, "off"))
			if i < odd {
				off[id] = time.Duration(rapid.Int64Range(int64(2*Refuse), int64(48*time.Hour)).Draw(t, "far")) * time.Duration(1-2*rapid.IntRange(0, 1).Draw(t, "behind"))
			}
			within := rapid.Int64Range(0, int64(time.Second)).Draw(t, "within")
			err := time.Duration(rapid.Int64Range(-within, within).Draw(t, "error"))
			readings[id] = Reading{Ahead: off[id] + err - reader, Within: time.Duration(within)}
		}
		verdicts := Judge(readings, 0, nil)
		for id, v := range verdicts {
			want := Right
			if off[id] >= 2*Refuse || off[id] <= -2*Refuse {
				want = Wrong
			}
			if v.State != want {
				t.Fatalf("the clock of %s is off by %s and judged %+v", id, off[id], v)
			}
			if d := v.Off - off[id]; d > 4*time.Second || d < -4*time.Second {
				t.Fatalf("the clock of %s is off by %s and said to be by %s", id, off[id], v.Off)
			}
		}
		for id, r := range readings { // by another reader's clock
			r.Ahead += time.Hour
			readings[id] = r
		}
		if again := Judge(readings, 0, nil); !maps.Equal(again, verdicts) {
			t.Fatalf("judged %v, and %v by another reader", verdicts, again)
		}
	})
}

// TestJudge_FewerThanHalfAreWrong, whatever the clocks say.
func TestJudge_FewerThanHalfAreWrong(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		readings := map[core.HostID]Reading{}
		for i := range rapid.IntRange(0, 9).Draw(t, "hosts") {
			readings[core.HostID(fmt.Sprint(i))] = Reading{
				Ahead: time.Duration(rapid.Int64Range(-100, 100).Draw(t, "ahead")) * time.Second, Within: time.Duration(rapid.Int64Range(0, 10).Draw(t, "within")) * time.Second,
			}
		}
		wrong, silent := 0, rapid.IntRange(0, 5).Draw(t, "silent")
		before := map[core.HostID]Verdict{}
		for id := range readings {
			before[id] = Verdict{State: State(rapid.IntRange(0, int(Wrong)).Draw(t, "before"))}
		}
		for _, v := range Judge(readings, silent, before) {
			if v.State == Wrong {
				wrong++
			}
		}
		if wrong > 0 && 2*wrong >= len(readings) || wrong > 0 && 2*(len(readings)-wrong) <= len(readings)+silent {
			t.Fatalf("%d of %d clocks are wrong, %d hosts are silent", wrong, len(readings), silent)
		}
	})
}

// TestJudge_Silent: hosts that do not answer agree with nobody. Two clocks of five hosts that are wrong alike make no
// third one wrong.
func TestJudge_Silent(t *testing.T) {
	readings := map[core.HostID]Reading{"a": {Ahead: time.Hour}, "b": {Ahead: time.Hour}, "c": {}}
	for silent, want := range map[int]State{0: Wrong, 1: Doubtful, 2: Doubtful} {
		if v := Judge(readings, silent, nil)["c"]; v.State != want {
			t.Errorf("with %d hosts silent c is %+v, want state %d", silent, v, want)
		}
	}
}

// TestJudge_StaysWrong until the clock is right again, not while it is off by about what is refused.
func TestJudge_StaysWrong(t *testing.T) {
	var before map[core.HostID]Verdict
	for i, x := range []struct {
		off  time.Duration
		want State
	}{{29 * time.Second, Doubtful}, {31 * time.Second, Wrong}, {29 * time.Second, Wrong}, {6 * time.Second, Wrong}, {4 * time.Second, Right}, {29 * time.Second, Doubtful}} {
		before = Judge(map[core.HostID]Reading{"a": {Ahead: x.off}, "b": {}, "c": {}}, 0, before)
		if v := before["a"]; v.State != x.want {
			t.Errorf("reading %d: a clock that is off by %s is %+v, want state %d", i, x.off, v, x.want)
		}
	}
}

func TestText(t *testing.T) {
	for off, want := range map[time.Duration]string{time.Hour + 4*time.Millisecond: "clock +1h0m0s", -90 * time.Second: "clock -1m30s"} {
		if got := Text(off); got != want {
			t.Errorf("%s is said as %q, want %q", off, got, want)
		}
	}
}
