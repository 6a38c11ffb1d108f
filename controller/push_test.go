package controller

import (
	"testing"
	"time"
)

// TestPush_LongListsGoTogether: a list takes long, and changes all the time. Changes wait for each other, and for a
// second at most.
func TestPush_LongListsGoTogether(t *testing.T) {
	for name, x := range map[string]struct {
		slow time.Duration
		most int
	}{"long": {100 * time.Millisecond, 7}, "short": {time.Millisecond, 101}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness) {
				q := r.queue(1, 1)
				r.group(q, "g")
				r.sleep(10 * time.Second)
				o := r.outputs[0]
				o.mu.Lock()
				o.slow, o.came = x.slow, 0
				o.mu.Unlock()
				const many = 100
				for range many {
					e := r.extent(q, 1)
					_, err := r.seal(e, 1)
					r.ok(err)
					r.sleep(25 * time.Millisecond)
				}
				took := r.eventually("the host has all shares", 10*time.Second, func() bool { return len(o.shares()) == many })
				if took > maxPushPause+500*time.Millisecond {
					t.Errorf("the last change came after %s", took)
				}
				o.mu.Lock()
				defer o.mu.Unlock()
				if o.came > x.most || o.came < 2 {
					t.Errorf("%d lists in 2.5 s", o.came)
				}
			})
		})
	}
}

// TestPush_LongListHoldsUpNoOther: a list that took long rests, and has changed again. A change of another queue comes
// at once.
func TestPush_LongListHoldsUpNoOther(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness) {
		all, o := r.queues(2), r.outputs[0]
		o.with(func() { o.slow = 500 * time.Millisecond })
		r.more(all[0])
		r.sleep(100 * time.Millisecond)
		r.more(all[0])
		r.sleep(500 * time.Millisecond)
		o.with(func() { o.slow = 0 })
		if n := len(o.shares()); n != 3 {
			t.Fatalf("the host has %d shares, want 3 while the long list rests", n)
		}
		r.more(all[1])
		if took := r.eventually("the list of the other queue comes", time.Second, func() bool { return len(o.shares()) == 4 }); took > 50*time.Millisecond {
			t.Errorf("it came after %s", took)
		}
		if n := len(o.lists[all[0]].Assignments); n != 2 {
			t.Errorf("the long list came with %d shares while it rested", n)
		}
		r.eventually("the long list comes again", 2*maxPushPause, func() bool { return len(o.shares()) == 5 })
	})
}
