package lease_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/metadata/lease"
	"github.com/columbamq/columba/metadata/memory"
)

// The time of a lease counts from before the question: an answer that comes late renews nothing.
func TestLease_LateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := contend(t, memory.New(), 0, 0, 1)
		within(t, "it is held", time.Second, func() bool { _, held := a.held(); return held })
		goOn := a.way.pause()
		took := within(t, "it is not held", lease.TTL, func() bool { _, held := a.held(); return !held })
		if took < lease.TTL/2 {
			t.Errorf("the lease is lost after %s", took)
		}
		time.Sleep(lease.TTL)
		goOn()
		synctest.Wait()
		if _, held := a.held(); held {
			t.Error("the answer of a renewal that began long ago gives the lease")
		}
		a.again(t)
	})
}

// The same goes for an answer that comes a moment after the lease has lapsed.
func TestLease_SlightlyLateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := contend(t, memory.New(), 0, 0, 1)
		synctest.Wait()
		goOn := a.way.pause()
		time.Sleep(4500 * time.Millisecond)
		goOn() // the first renewal has failed
		time.Sleep(time.Millisecond)
		goOn = a.way.pause()
		within(t, "it is not held", lease.TTL, func() bool { _, held := a.held(); return !held })
		goOn()
		a.again(t)
	})
}

// again waits until the lease is held again after it lapsed.
func (c *contender) again(t *testing.T) {
	within(t, "it is held again", 2*time.Second, func() bool { _, held := c.held(); return held })
	if term, _ := c.held(); term != 2 {
		t.Errorf("term is %d, want 2: the lease lapsed", term)
	}
	if err := c.end(); err != nil {
		t.Error(err)
	}
}
