package inputhost

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
)

var testStoreLimits = storeLimits{deadline: 5 * time.Second, slow: 500 * time.Millisecond, slowFor: 5 * time.Second, stuck: 1500 * time.Millisecond}

// watch looks at stores every tick of virtual time and remembers what it evicted when.
type watch struct {
	*stores
	began, now time.Time
	evicted    map[core.HostID][]time.Duration
}

func newWatch() *watch {
	began := time.Unix(1_000_000, 0)
	return &watch{stores: newStores(testStoreLimits), began: began, now: began, evicted: make(map[core.HostID][]time.Duration)}
}

// pass looks for a time; lags are what every look finds, in milliseconds {oldest, slowest}.
func (w *watch) pass(d time.Duration, lags map[core.HostID][2]int) {
	for end := w.now.Add(d); w.now.Before(end); {
		w.now = w.now.Add(tickEvery)
		found := make(map[core.HostID]lag)
		for id, l := range lags {
			found[id] = lag{oldest: time.Duration(l[0]) * time.Millisecond, slowest: time.Duration(l[1]) * time.Millisecond}
		}
		if id, why := w.look(w.now, found); id != "" {
			if why == "" {
				panic("an eviction without a reason")
			}
			w.evicted[id] = append(w.evicted[id], w.now.Sub(w.began))
		}
	}
}

func (w *watch) want(t *testing.T, want map[core.HostID]int) {
	t.Helper()
	for id, n := range want {
		if len(w.evicted[id]) != n {
			t.Errorf("store %s was evicted at %v, want %d times", id, w.evicted[id], n)
		}
	}
	for id := range w.evicted {
		if want[id] == 0 {
			t.Errorf("store %s was evicted at %v", id, w.evicted[id])
		}
	}
}

func TestStores_SlowOneIsEvicted(t *testing.T) {
	w := newWatch()
	lags := map[core.HostID][2]int{"a": {3, 5}, "b": {600, 700}, "c": {0, 4}}
	w.pass(20*time.Second, lags)
	w.want(t, map[core.HostID]int{"b": 1})
	if at := w.evicted["b"][0]; at < 5*time.Second || at > 5*time.Second+2*tickEvery {
		t.Errorf("evicted after %s, want 5 s of slowness", at)
	}
	if got := w.avoid(w.now); !slices.Equal(got, []core.HostID{"b"}) {
		t.Errorf("avoided: %v, want b", got)
	}
	w.pass(time.Minute, map[core.HostID][2]int{"a": {3, 5}})
	if got := w.avoid(w.now); len(got) > 0 {
		t.Errorf("still avoided after a minute: %v", got)
	}
}

func TestStores_NotSlowAtAStretch(t *testing.T) {
	w := newWatch()
	for range 10 {
		w.pass(4*time.Second, map[core.HostID][2]int{"a": {3, 5}, "b": {600, 700}})
		w.pass(tickEvery, map[core.HostID][2]int{"a": {3, 5}, "b": {0, 20}})
	}
	w.want(t, nil)
}

// A store that nobody writes to for a while begins anew; the pauses between few messages are no evidence for it.
func TestStores_IdleForgets(t *testing.T) {
	w := newWatch()
	well := map[core.HostID][2]int{"a": {3, 5}}
	slow := map[core.HostID][2]int{"a": {3, 5}, "b": {0, 700}}
	for range 6 {
		w.pass(tickEvery, slow)
		w.pass(time.Second, well)
	}
	w.want(t, map[core.HostID]int{"b": 1})
	w = newWatch()
	for range 6 {
		w.pass(3*time.Second, slow)
		w.pass(3*time.Second, well)
	}
	w.want(t, nil)
}

func TestStores_AllSlowAreLetBe(t *testing.T) {
	w := newWatch()
	w.pass(time.Minute, map[core.HostID][2]int{"a": {600, 900}, "b": {600, 700}, "c": {800, 2000}})
	w.want(t, nil)
}

func TestStores_OnlyStoreIsNotSlow(t *testing.T) {
	w := newWatch()
	w.pass(time.Minute, map[core.HostID][2]int{"a": {600, 900}})
	w.want(t, nil)
}

// Without acknowledgements for the deadline a store is evicted whatever the others do, but only one a second.
func TestStores_SilentOnes(t *testing.T) {
	w := newWatch()
	w.pass(time.Second, nil)
	age := 0
	for range 26 { // their oldest batches age
		age += int(tickEvery / time.Millisecond)
		lags := map[core.HostID][2]int{"a": {age, 0}, "b": {age - 100, 0}, "c": {age + 1, 0}}
		for id := range w.evicted { // its extents have ended
			delete(lags, id)
		}
		w.pass(tickEvery, lags)
	}
	w.want(t, map[core.HostID]int{"a": 1, "b": 0, "c": 1})
	if d := w.evicted["a"][0] - w.evicted["c"][0]; w.evicted["c"][0] < 5*time.Second || d < time.Second {
		t.Errorf("evicted at %v, want from 5 s of silence on and a second apart, the most silent first", w.evicted)
	}
}

// A host that stood still finds old batches everywhere: that says nothing about the stores.
func TestStores_OwnStandstill(t *testing.T) {
	w := newWatch()
	w.pass(10*time.Second, map[core.HostID][2]int{"a": {3, 5}, "b": {3, 5}})
	w.now = w.now.Add(time.Minute)
	w.pass(4*time.Second, map[core.HostID][2]int{"a": {60_000, 0}, "b": {60_000, 0}})
	w.want(t, nil)
	w.pass(1500*time.Millisecond, map[core.HostID][2]int{"a": {64_000, 0}, "b": {3, 5}})
	w.want(t, map[core.HostID]int{"a": 1})
}

func TestStores_Failed(t *testing.T) {
	w := newWatch()
	broke := errors.New("the link broke")
	if !w.failed(w.now, "a", broke) || w.failed(w.now, "a", broke) {
		t.Error("a failure must be news once")
	}
	if w.failed(w.now, "b", core.Errorf(core.CodeFenced, "sealed")) {
		t.Error("a fence is no fault of the store")
	}
	if got := w.avoid(w.now); !slices.Equal(got, []core.HostID{"a"}) {
		t.Errorf("avoided: %v, want a", got)
	}
	w.opened(w.now, "a")
	if got := w.avoid(w.now); len(got) > 0 {
		t.Errorf("avoided though an extent was opened there: %v", got)
	}
	w.failed(w.now, "a", broke)
	if got := w.avoid(w.now.Add(avoidBroken)); len(got) > 0 {
		t.Errorf("avoided after %s: %v", avoidBroken, got)
	}
}

// However stores fare, two evictions are never less than a second apart, none is of a store that was fast throughout,
// and what is kept of them stays bounded.
func TestStores_Properties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWatch()
		var last time.Time
		slow := make(map[core.HostID]bool)
		ids := []core.HostID{"a", "b", "c", "d"}
		for range rapid.IntRange(1, 200).Draw(t, "looks") {
			w.now = w.now.Add(time.Duration(rapid.IntRange(1, 1500).Draw(t, "after")) * time.Millisecond)
			lags := make(map[core.HostID]lag)
			for _, id := range ids {
				millis := func(most int, of string) time.Duration {
					return time.Duration(rapid.IntRange(0, most).Draw(t, of)) * time.Millisecond
				}
				l := lag{oldest: millis(8000, "oldest"), slowest: millis(900, "slowest"), silent: millis(3000, "silent")}
				if id == "d" { // always fast
					l.oldest, l.slowest = min(l.oldest, 499*time.Millisecond), min(l.slowest, 499*time.Millisecond)
				}
				if rapid.Bool().Draw(t, "behind") {
					l.behind = l.oldest
				}
				if rapid.Bool().Draw(t, "overtaken") {
					l.behind, l.overtaken = l.oldest, l.oldest
				}
				slow[id] = slow[id] || max(l.oldest, l.slowest) >= testStoreLimits.slow
				lags[id] = l
			}
			id, _ := w.look(w.now, lags)
			if id == "" {
				continue
			}
			if !slow[id] {
				t.Fatalf("evicted %s, which was never slow", id)
			}
			if !last.IsZero() && w.now.Sub(last) < evictEvery {
				t.Fatalf("evicted twice within %s", w.now.Sub(last))
			}
			last = w.now
		}
		if len(w.mu.known) > len(ids) {
			t.Fatalf("keeps %d stores of %d", len(w.mu.known), len(ids))
		}
	})
}

// The store that failed last comes first: it is the one that is likeliest to be gone still.
func TestStores_AvoidsTheLastFirst(t *testing.T) {
	w := newWatch()
	broke := errors.New("the link broke")
	for i, id := range []core.HostID{"b", "a", "c", "a"} {
		w.failed(w.now.Add(time.Duration(i)*time.Second), id, broke)
	}
	if got := w.avoid(w.now.Add(4 * time.Second)); !slices.Equal(got, []core.HostID{"a", "c", "b"}) {
		t.Errorf("avoided: %v, want a, c, b", got)
	}
}

func TestStores_StartedAnew(t *testing.T) {
	w := newWatch()
	run := func() core.RunID { return core.RunID{ID: core.NewID(w.now)} }
	a, b := membership.Host{ID: "a", Run: run()}, membership.Host{ID: "b", Run: run()}
	w.members([]membership.Host{a, b})
	w.failed(w.now, "a", errors.New("the link broke"))
	w.members([]membership.Host{a, b})
	if got := w.avoid(w.now); !slices.Equal(got, []core.HostID{"a"}) {
		t.Errorf("avoided: %v, want a: it is the run that broke", got)
	}
	a.Run = run()
	w.members([]membership.Host{a, b})
	if got := w.avoid(w.now); len(got) > 0 {
		t.Errorf("avoided: %v after a new start", got)
	}
	if !w.failed(w.now, "a", errors.New("the link broke")) {
		t.Error("a failure of the new run must be news")
	}
}

// An answer to an opening says nothing about a store that broke since.
func TestStores_BrokeWhileOpening(t *testing.T) {
	w := newWatch()
	began := w.now
	w.failed(w.now.Add(time.Millisecond), "a", errors.New("the link broke"))
	w.opened(began, "a")
	if got := w.avoid(w.now.Add(2 * time.Millisecond)); !slices.Equal(got, []core.HostID{"a"}) {
		t.Errorf("avoided: %v, want a", got)
	}
}
