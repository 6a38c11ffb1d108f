package controller

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// TestRounds_IdleLooksHoldUpNothing: the looks at many idle queues take longer than the metadata can do at once. A
// group that is new, and the shares of a host that is gone, wait for few of them.
func TestRounds_IdleLooksHoldUpNothing(t *testing.T) {
	const many, soon = 480, 8 * time.Second
	bubble(t, harnessOptions{stores: 1, outputs: 2}, func(r *harness) {
		meta := &slowLists{Store: r.meta}
		r.ctl.end()
		r.use(meta)
		r.ctl = r.startController(nil)
		queues := make([]core.QueueID, many)
		groups := make([]core.GroupID, many)
		for i := range queues {
			queues[i] = r.queue(1, 1)
			groups[i] = r.group(queues[i], "g")
			r.extent(queues[i], 1)
		}
		r.sleep(5 * time.Minute)
		meta.on.Store(true)
		for n := range 5 {
			r.sleep(13 * time.Second)
			group := r.group(queues[n], "other")
			e := r.ctl.extents.Of(queues[n])[0].ID
			took := r.eventually("the share of a new group has an owner", time.Minute, func() bool { return r.ownerOf(group, e) != "" })
			if t.Logf("a new group after %s", took); took > soon {
				t.Errorf("the share of a new group has an owner after %s", took)
			}
		}
		r.sleep(missedEvery)
		r.kill("o1")
		r.leave("o1")
		took := r.eventually("the shares of a host that is gone have another owner", time.Minute, func() bool {
			for i, queue := range queues {
				if r.ownerOf(groups[i], r.ctl.extents.Of(queue)[0].ID) == "o1" {
					return false
				}
			}
			return true
		})
		if t.Logf("other owners after %s", took); took > soon+r.ctl.cfg.GoneAfter {
			t.Errorf("the shares of a host that is gone have another owner after %s", took)
		}
		meta.on.Store(false)
	})
}
