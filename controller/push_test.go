package controller

import (
	"testing"
	"time"
)

// TestPush_LongListsGoTogether: a list takes long, and changes all the time. Changes wait for each other, and for a second at most.
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
