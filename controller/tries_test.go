package controller

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/seal"
)

// takeAll takes all extents whose turn has come.
func (x *tries) takeAll(now time.Time) (out []core.ExtentID) {
	for id, _, ok := x.next(now); ok; id, _, ok = x.next(now) {
		out = append(out, id)
	}
	return out
}

// TestTries_FailedOnesComeLater is the order of a round.
func TestTries_FailedOnesComeLater(t *testing.T) {
	now, x := time.Unix(1_000_000, 0), newTries()
	old, waits, failed, fresh := numbered(0), numbered(1), numbered(2), numbered(3)
	x.fail(waits, now)
	x.fail(old, now.Add(-2*time.Second))
	x.fail(failed, now.Add(-time.Minute))
	for _, id := range []core.ExtentID{old, waits, failed, fresh, fresh} {
		x.add(id)
	}
	if got := x.takeAll(now); !slices.Equal(got, []core.ExtentID{fresh, failed, old}) {
		t.Errorf("in the order %v", got)
	}
	if got := x.takeAll(now.Add(time.Second)); !slices.Equal(got, []core.ExtentID{waits}) {
		t.Errorf("a second later: %v", got)
	}
	x.addAt(waits, time.Time{})
	if got := x.takeAll(now); len(got) != 0 {
		t.Errorf("one that has failed is tried before its time: %v", got)
	}
	x.addAt(fresh, now.Add(time.Minute))
	if x.free(); !slices.Equal(x.takeAll(now), []core.ExtentID{waits, fresh}) {
		t.Error("a store has come, and those that wait are not tried at once")
	}
	if len(x.mu.byID)+len(x.mu.turns) != 0 {
		t.Errorf("%d are remembered", len(x.mu.byID))
	}
}

// TestTries_AsIfAllWereSorted: whatever happens to extents, turns come in the order that sorting all of them would
// give.
func TestTries_AsIfAllWereSorted(t *testing.T) {
	type known struct {
		waits, failed bool
		after         time.Time
		pause         time.Duration
	}
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 0))
		x, now, model := newTries(), time.Unix(1_000_000, 0), make(map[core.ExtentID]known)
		for step := range 3000 {
			id := numbered(random.IntN(300))
			k := model[id]
			switch random.IntN(8) {
			case 0, 1, 2:
				x.add(id)
				k.waits = true
			case 3, 4:
				x.fail(id, now)
				k.failed, k.pause = true, min(max(2*k.pause, minStuck), maxStuck)
				k.after = now.Add(k.pause)
			case 5:
				x.succeed(id)
				k = known{waits: k.waits}
			case 6:
				news := x.raise(id, seal.Alarm(fmt.Sprint(step)))
				if k.failed = true; !news {
					t.Fatal("an alarm is no news")
				}
			case 7:
				now = now.Add(time.Duration(random.IntN(1000)) * time.Millisecond)
			}
			model[id] = k
			if x.hasFailed(id) != k.failed {
				t.Fatalf("seed %d, step %d: failed is %v", seed, step, !k.failed)
			}
			if step%500 == 499 {
				x.free()
				for id, k := range model {
					model[id] = known{waits: k.waits}
				}
			}
			if step%50 != 0 {
				continue
			}
			var want []core.ExtentID
			for id, k := range model {
				if k.waits && !now.Before(k.after) {
					want = append(want, id)
				}
			}
			slices.SortFunc(want, func(a, b core.ExtentID) int {
				return cmp.Or(model[a].after.Compare(model[b].after), slices.Compare(a.ID[:], b.ID[:]))
			})
			if got := x.takeAll(now); !slices.Equal(got, want) {
				t.Fatalf("seed %d, step %d: in the order %v, want %v", seed, step, got, want)
			}
			for _, id := range want {
				k := model[id]
				k.waits = false
				model[id] = k
			}
		}
	}
}
