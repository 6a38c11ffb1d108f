package controller

import (
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// TestSeal_ThoseThatFailHoldUpNobody: many extents are on a store that hangs, and their writers ask again and again.
func TestSeal_ThoseThatFailHoldUpNobody(t *testing.T) {
	bubble(t, rigOptions{stores: 2, edit: func(c *Config) { c.SealsAtOnce = 8 }}, func(r *rig) {
		var dead, well []core.Extent
		for len(dead) < 40 || len(well) < 10 {
			e := r.extent(r.queue(1, 1), 3)
			if e.Replicas[0] == "s0" {
				dead = append(dead, e)
			} else {
				well = append(well, e)
			}
		}
		r.hang(r.stores[0])
		r.sleep(5 * time.Second) // it is known not to answer
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for _, e := range dead {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(250 * time.Millisecond):
						r.seal(e, 3)
					}
				}
			})
		}
		r.sleep(20 * time.Second)
		for _, e := range well[:10] {
			began := time.Now()
			_, err := r.seal(e, 3)
			r.ok(err)
			if took := time.Since(began); took > time.Second {
				t.Errorf("a seal that needs only the store that is well took %s", took)
			}
		}
		close(stop)
		wg.Wait()
	})
}
