package cluster

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
	"github.com/columbamq/columba/storehost/extentlog"
)

// damagedOn counts the quarantined replicas of a store.
func (w *world) damagedOn(id core.HostID) (n int) {
	w.t.Helper()
	w.ok(w.hosts[id].process.log.List(func(s extentlog.State) bool {
		if s.Damaged {
			n++
		}
		return true
	}))
	return n
}

// lackCopies counts the sealed extents with fewer whole replicas than that.
func (w *world) lackCopies(least int) (n int) {
	w.t.Helper()
	whole := make(map[core.ExtentID]int)
	for i := range w.o.Stores {
		w.ok(w.hosts[Store(i)].process.log.List(func(s extentlog.State) bool {
			if s.Sealed && !s.Damaged && s.Last == s.L {
				whole[s.Extent.ID]++
			} else if s.Sealed {
				whole[s.Extent.ID] += 0
			}
			return true
		}))
	}
	for _, copies := range whole {
		if copies < least {
			n++
		}
	}
	return n
}

// TestCluster_BitsFlippedInAllFilesOfAStore: one bit of each file of a stopped store is flipped. The store starts, and
// all is delivered. After a while each extent has all its copies, none of which is damaged.
func TestCluster_BitsFlippedInAllFilesOfAStore(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			underrace.One(t, seed == 0)
			bubble(t, Options{Stores: 3, Replicas: 2, Input: rollAt(30_000)}, func(w *world) {
				w.group("g", nil)
				var want []string
				for len(want) < 400 {
					var some []string
					for range 10 {
						some = append(some, fmt.Sprintf("%06d%s", len(want)+len(some), strings.Repeat("x", 3000)))
					}
					w.publish(some...)
					want = append(want, some...)
					sleep(time.Second)
				}
				h := w.hosts[Store(0)]
				h.stop()
				files, err := h.disk.FlipAll(rand.New(rand.NewPCG(seed, 9)))
				w.ok(err)
				w.Up(Store(0))
				con := w.consumer("g")
				got := make(map[string]int)
				w.drain(con, len(want), got)
				w.all(got, want, true)
				w.close(con)
				began, at, thin := time.Now(), w.damagedOn(Store(0)), w.lackCopies(2)
				for w.damagedOn(Store(0)) > 0 || w.lackCopies(2) > 0 {
					if time.Since(began) > time.Hour {
						w.t.Fatalf("%d damaged replicas, and %d extents with too few copies", w.damagedOn(Store(0)), w.lackCopies(2))
					}
					sleep(time.Second)
				}
				w.t.Logf("%d files; %d of %d replicas were damaged, %d extents lacked copies; all is repaired after %s", files, at, w.replicasOn(Store(0)), thin, time.Since(began))
			})
		})
	}
}
