package controller

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// rested is how old a queue is whose next look is in 20 minutes.
const rested = 22 * time.Minute

// TestTellers_OneThatEnds: a group is made, and the process that was to tell of it ends before it has. The group is
// found soon, in a queue that has rested for long. As long as the process is there, nothing looks for what it tells.
func TestTellers_OneThatEnds(t *testing.T) {
	for _, role := range []string{"controller", "frontend"} {
		t.Run(role, func(t *testing.T) {
			bubble(t, harnessOptions{stores: 1, outputs: 1, edit: calm}, func(r *harness) {
				teller := membership.Host{ID: "other", Roles: []string{role}, Address: "other:1", Run: newRun()}
				r.join(teller)
				queue := r.queue(1, 1)
				r.group(queue, "g")
				e := r.extent(queue, 1)
				r.sleep(rested)
				untold := core.GroupID{ID: core.NewID(time.Now())}
				r.ok(metadata.Create(r.t.Context(), r.meta, metadata.Groups, metadata.GroupKey(queue, "untold"), metadata.GroupRecord{
					ID: untold, Queue: queue, Started: true, Spec: core.GroupSpec{Name: "untold", Status: core.StatusEnabled},
				}))
				r.sleep(missedEvery + time.Minute)
				if owner := r.ownerOf(untold, e.ID); owner != "" {
					t.Fatalf("the queue was looked at: %s owns a share of a group that nobody told of", owner)
				}
				r.leave(teller.ID)
				r.eventually("a group is found that nobody told of", missedEvery+time.Minute, func() bool { return r.ownerOf(untold, e.ID) != "" })
			})
		})
	}
}

// TestTellers_Spread: the looks at queues after a process has ended are not all at once.
func TestTellers_Spread(t *testing.T) {
	const many, most = 300, 30 // in 10 s; evenly 10
	bubble(t, harnessOptions{stores: 1, outputs: 1, edit: calm}, func(r *harness) {
		lists := &looksAt{Store: r.meta}
		r.ctl.end()
		r.use(lists)
		r.ctl = r.startController(func(c *Config) {
			calm(c)
			c.ReconcileEvery = time.Second
		})
		r.join(membership.Host{ID: "other", Roles: []string{"controller"}, Address: "other:1", Run: newRun()})
		for range many {
			r.extent(r.queue(1, 1), 1)
		}
		r.sleep(rested)
		r.leave("other")
		total := int64(0)
		for range missedEvery/(10*time.Second) + 1 {
			before := lists.n.Load()
			r.sleep(10 * time.Second)
			n := lists.n.Load() - before
			if total += n; n > most {
				t.Errorf("%d queues are looked at in 10 s", n)
			}
		}
		if total < many {
			t.Errorf("%d of %d queues were looked at", total, many)
		}
	})
}
