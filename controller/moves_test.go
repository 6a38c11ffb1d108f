package controller

import (
	"testing"
	"time"

	"github.com/columbamq/columba/membership"
)

// TestMoves_TheOldOwnerGivesAwayFirst has an output host come to one that has all shares, and is well, slow, or hangs.
func TestMoves_TheOldOwnerGivesAwayFirst(t *testing.T) {
	const many = 20
	for name, c := range map[string]struct {
		slow time.Duration
		hung bool
	}{"well": {}, "slow": {slow: time.Second}, "hangs": {hung: true}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness) {
				q := r.queue(1, 1)
				r.group(q, "g")
				for range many {
					_, err := r.seal(r.extent(q, 1), 1)
					r.ok(err)
				}
				before := r.outputs[0]
				r.eventually("the first host has all shares", 20*time.Second, func() bool { return len(before.shares()) == many })
				r.sleep(time.Minute)
				before.mu.Lock()
				before.slow = c.slow
				if c.hung {
					before.hung = make(chan struct{})
					defer close(before.hung)
				}
				before.mu.Unlock()
				after := &fakeOutput{id: "o1", run: newRun()}
				r.upOutput(after)
				began := time.Now()
				r.join(membership.Host{ID: after.id, Roles: []string{"outputhost"}, Address: "o1:1", Run: after.run})
				took := r.eventually("the second host has a part", 20*time.Second, func() bool { return len(after.shares()) > 0 })
				before.mu.Lock()
				given := before.at
				before.mu.Unlock()
				switch {
				case c.hung && (took < moveWithin || took > moveWithin+2*time.Second):
					t.Errorf("shares of a host that does not confirm moved after %s, want %s", took, moveWithin)
				case !c.hung && took > c.slow+500*time.Millisecond:
					t.Errorf("shares moved after %s", took)
				case !c.hung && (given.Before(began) || after.at.Before(given)):
					t.Errorf("the second host was told %s before the first one had given the shares away", given.Sub(after.at))
				}
				r.sleep(moveWithin)
				if n := len(after.shares()); !c.hung && len(before.shares())+n != many {
					t.Errorf("the hosts have %d and %d of %d shares", len(before.shares()), n, many)
				}
			})
		})
	}
}
