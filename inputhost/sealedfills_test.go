package inputhost

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/inputhost/tenant"
)

// TestQueue_TellsOfSealedExtents for a while: until the controller has measured them, it counts what it is told.
func TestQueue_TellsOfSealedExtents(t *testing.T) {
	bubble(t, 1, func(c *Config) { c.RollBytes = 1000 }, func(r *harness) {
		p := r.publisher("p", path)
		send := func(n int) {
			for range n / 100 { // each time to an extent that is not full yet
				for range 100 {
					p.send()
				}
				p.flush()
				synctest.Wait()
			}
		}
		send(2000)
		r.all(2000)
		q := r.host.list()[0]
		told := func() (bytes uint64, extents int) {
			for _, f := range q.fills() {
				bytes += f.Bytes
				extents++
			}
			return bytes, extents
		}
		bytes, extents := told()
		if extents <= q.unsealed() {
			t.Fatalf("told of %d extents, %d are not sealed", extents, q.unsealed())
		}
		sleep(tenant.TellSealed / 2)
		if later, _ := told(); later < bytes {
			t.Errorf("told of %d bytes, and before of %d", later, bytes)
		}
		sleep(tenant.TellSealed + time.Second)
		if _, extents := told(); extents != q.unsealed() {
			t.Errorf("told of %d extents, %d are not sealed", extents, q.unsealed())
		}
	})
}
