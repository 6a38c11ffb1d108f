package inputhost

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// TestPace_Pauses fails extents of a queue in turn, each begun as soon as it may be, and checks how long the next one
// waits.
func TestPace_Pauses(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	var p pace
	for i, want := range []time.Duration{0, 500 * time.Millisecond, 2 * time.Second, 4 * time.Second, 4 * time.Second, 4 * time.Second} {
		p.failed("s", core.RunID{}, now, now)
		if got := p.wait(now); got != want {
			t.Errorf("after %d failures the next extent waits %s, want %s", i+1, got, want)
		}
		if calm := p.calm(now); calm != (i == 0) {
			t.Errorf("after %d failures calm is %v", i+1, calm)
		}
		now = now.Add(want)
		if got := p.wait(now); got != 0 {
			t.Errorf("%s are left after the pause", got)
		}
	}
	now = p.last.Add(paceCalmAfter)
	p.failed("s", core.RunID{}, now, now)
	if got := p.wait(now); got != 0 || !p.calm(now) {
		t.Errorf("the next extent waits %s though all failures are forgiven", got)
	}
}

// TestPace_ForgivesAStormInBoundedTime: after an hour of failures a queue is calm as soon after the last one as after a
// storm of a few.
func TestPace_ForgivesAStormInBoundedTime(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	var p pace
	for range 900 {
		p.failed("s", core.RunID{}, now, now)
		now = now.Add(paceMost)
	}
	if now = p.last.Add(paceCalmAfter - time.Second); p.calm(now) {
		t.Error("the queue is calm before the failures are forgiven")
	}
	if now = p.last.Add(paceCalmAfter); !p.calm(now) {
		t.Errorf("the queue is not calm %s after the last failure: level %.2f", paceCalmAfter, p.levelAt(now))
	}
}

// TestPace_CountsWhatFailsTogetherOnce: a lost store ends all extents of a queue at once.
func TestPace_CountsWhatFailsTogetherOnce(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	var p pace
	begun := now.Add(-time.Minute)
	for range 8 {
		p.failed("s", core.RunID{}, begun, now)
		now = now.Add(time.Millisecond)
	}
	if got := p.wait(now); got != 0 {
		t.Errorf("the next extent waits %s after the loss of a store", got)
	}
}

// TestPace_StoresThatAreKilledInTurn: each is started anew before it is killed again, so nothing waits.
func TestPace_StoresThatAreKilledInTurn(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	var p pace
	runs := make(map[core.HostID]core.RunID)
	for i := range 30 {
		store := []core.HostID{"a", "b", "c"}[i%3]
		p.failed(store, runs[store], now, now)
		if got := p.wait(now); got != 0 || !p.calm(now) {
			t.Fatalf("after %d stores the next extent waits %s, calm is %v", i+1, got, p.calm(now))
		}
		runs[store] = core.RunID{ID: core.ID{byte(i + 1)}}
		now = now.Add(time.Second)
	}
	now = now.Add(time.Minute)
	if p.failed("c", runs["c"], now, now); len(p.stores) != 1 {
		t.Errorf("the last failures of %d stores are known a minute later, want that of one", len(p.stores))
	}
	now = now.Add(paceApart / 2)
	if p.failed("a", runs["a"], now, now); p.wait(now) != pacePause {
		t.Errorf("after two stores in half a second the next extent waits %s, want %s", p.wait(now), pacePause)
	}
}

// TestPace_CalmsDownWhileStoresAreKilled: links were reset for a while, and then stores are killed in turn, each some
// seconds after the last one.
func TestPace_CalmsDownWhileStoresAreKilled(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	var p pace
	for range 10 {
		p.failed("a", core.RunID{}, now, now)
		now = now.Add(300 * time.Millisecond)
	}
	if p.calm(now) {
		t.Fatal("the queue is calm while links are reset")
	}
	end := now.Add(paceCalmAfter)
	for i := byte(1); now.Before(end); i++ {
		p.failed("b", core.RunID{ID: core.ID{i}}, now, now)
		now = now.Add(3 * time.Second)
	}
	if p.failed("b", core.RunID{ID: core.ID{99}}, now, now); p.wait(now) != 0 || !p.calm(now) {
		t.Errorf("the next extent waits %s, level %.2f", p.wait(now), p.levelAt(now))
	}
}

// TestQueue_ResetsMakeNoStormOfExtents resets the link to one store after the other, several times a second, for 15 s,
// while three queues are published to: they open few extents, and nothing that was published is refused.
func TestQueue_ResetsMakeNoStormOfExtents(t *testing.T) {
	bubble(t, 3, nil, func(r *harness) {
		r.queue("/t/r")
		r.queue(chainPath)
		var all []*client
		for _, queue := range []string{path, "/t/r", chainPath} {
			all = append(all, r.publisher(queue, queue))
		}
		load := func(d time.Duration, reset bool) {
			for i := 0; time.Duration(i)*50*time.Millisecond < d; i++ {
				for _, p := range all {
					p.send()
				}
				if reset && i%6 == 5 {
					r.stores[i/6%3].cut()
				}
				sleep(50 * time.Millisecond)
			}
		}
		load(2*time.Second, false)
		before := r.ctl.asked()
		load(15*time.Second, true)
		during := r.ctl.asked() - before
		const again = paceCalmAfter + 2*time.Second // the next tick opens what is missing
		load(again, false)
		for _, p := range all {
			p.flush()
		}
		r.all(3 * 20 * int((17*time.Second+again)/time.Second))
		if during > 25 {
			t.Errorf("resets for 15 s made %d extents of three queues, want at most 25", during)
		}
		if got := len(r.open(path)); got != 2 {
			t.Errorf("%d extents of a queue are open when all is calm again, want 2", got)
		}
		t.Logf("%d extents before, %d during the resets, %d after; longest pause %s", before, during, r.ctl.asked()-before-during, r.mu.gap)
	})
}

// TestQueue_FenceIsNoFailure: an operator who seals extents makes no queue wait, nor does a store that is full.
func TestQueue_FenceIsNoFailure(t *testing.T) {
	gone := core.Errorf(core.CodeUnavailable, "gone")
	if countsAgainstPace("s", core.Errorf(core.CodeFenced, "fenced")) || countsAgainstPace("s", core.Errorf(core.CodeNoSpace, "full")) ||
		countsAgainstPace("s", nil) || countsAgainstPace("", gone) || !countsAgainstPace("s", gone) {
		t.Error("only what fails by itself counts")
	}
}

// asked is how many extents the controller was asked for.
func (c *controller) asked() (n int) {
	c.set(func() { n = c.mu.ensures })
	return n
}
