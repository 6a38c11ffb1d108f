package duty_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/duty"
)

func self(id core.HostID) core.HostID { return id }

func TestOf_LiveOnesByRank(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfNDistinct(rapid.StringMatching("[a-z]{1,6}"), 0, 6, rapid.ID).Draw(t, "controllers")
		var all []core.HostID
		quiet := make(map[core.HostID]bool)
		for _, id := range ids {
			all = append(all, core.HostID(id))
			quiet[core.HostID(id)] = rapid.Bool().Draw(t, "silent")
		}
		key := core.ID{rapid.Byte().Draw(t, "key")}
		got := duty.Of(key, all, self, func(id core.HostID) bool { return quiet[id] })
		rank := core.Rank(key.String(), all, self)
		live := slices.DeleteFunc(slices.Clone(rank), func(id core.HostID) bool { return quiet[id] })
		silent := slices.DeleteFunc(slices.Clone(rank), func(id core.HostID) bool { return !quiet[id] })
		if !slices.Equal(got.Live, live) || !slices.Equal(got.Silent, silent) {
			t.Fatalf("live %v, silent %v; want %v and %v", got.Live, got.Silent, live, silent)
		}
		if passed := rank[:got.Passed]; !slices.Equal(passed, silent[:got.Passed]) || len(live) > 0 && rank[got.Passed] != live[0] || len(live) == 0 && got.Passed != len(silent) {
			t.Fatalf("%d are passed over; ranks %v, silent %v", got.Passed, rank, silent)
		}
	})
}

// TestOf_OnlyItsKeysMove: while a controller is silent, the duties of the others stay theirs.
func TestOf_OnlyItsKeysMove(t *testing.T) {
	all := []core.HostID{"a", "b", "c"}
	moved := make(map[core.HostID]int)
	for i := range 300 {
		key := core.ID{byte(i), byte(i >> 8)}
		before := duty.Of(key, all, self, func(core.HostID) bool { return false }).Live[0]
		after := duty.Of(key, all, self, func(id core.HostID) bool { return id == "a" }).Live[0]
		if before != "a" && after != before {
			t.Fatalf("key %s moved from %s to %s, which a's silence has nothing to do with", key, before, after)
		}
		if before == "a" {
			moved[after]++
		}
	}
	if moved["b"] < 20 || moved["c"] < 20 {
		t.Errorf("a's duties moved to %v, want about as many to each", moved)
	}
}

func TestWatch(t *testing.T) {
	begin := time.Unix(1_000_000, 0)
	at := func(d time.Duration) time.Time { return begin.Add(d) }
	var w duty.Watch[string]
	expect := func(d time.Duration, want bool) {
		t.Helper()
		if got := w.Silent("a", at(d)); got != want {
			t.Errorf("silent at %s: %t, want %t", d, got, want)
		}
	}
	end := func(d time.Duration, answered, wasWant, isWant bool) {
		t.Helper()
		if was, is := w.End("a", at(d), answered); was != wasWant || is != isWant {
			t.Errorf("a call ends at %s: silent %t, then %t; want %t and %t", d, was, is, wasWant, isWant)
		}
	}
	const s = duty.Silence
	expect(time.Hour, false)
	w.Begin("a", at(0))
	w.Begin("a", at(s/2))
	expect(s-1, false)
	expect(s, true)
	end(s+1, true, false, false) // late, but it answers
	expect(2*s, false)
	expect(2*s+1, true) // the other call gets no answer since
	end(2*s+1, false, false, true)
	expect(time.Hour, true)
	w.Begin("a", at(time.Hour))
	end(time.Hour+1, false, true, true) // a refused connection is no answer
	expect(time.Hour+1, true)
	w.Begin("a", at(2*time.Hour))
	end(2*time.Hour+1, true, true, false)
	expect(3*time.Hour, false)
	for i := range 10 { // it refuses connections, for long
		w.Begin("a", at(4*time.Hour+time.Duration(i)*s))
		end(4*time.Hour+time.Duration(i)*s+1, false, false, false)
	}
}

func TestWatch_SilentOnesAreTriedOnceInAWhile(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	var w duty.Watch[string]
	if w.Try("a", now) {
		t.Error("one is tried of which nothing is known")
	}
	w.Begin("a", now)
	now = now.Add(duty.Silence)
	tried := 0
	for range 100 {
		if w.Silent("a", now) && w.Try("a", now) {
			tried++
		}
		now = now.Add(duty.TryEvery / 10)
	}
	if tried != 10 {
		t.Errorf("tried %d times in %s, want 10", tried, 10*duty.TryEvery)
	}
}

func TestWatch_IsBounded(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	var w duty.Watch[string]
	w.Begin("under way", now)
	for i := range 5000 {
		k := fmt.Sprint(i)
		w.Begin(k, now)
		w.End(k, now.Add(duty.Silence), false)
	}
	if w.Silent("0", now) || !w.Silent("4999", now) {
		t.Error("the oldest are remembered, or the last is not")
	}
	w.End("under way", now, true)
}
