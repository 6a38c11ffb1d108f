package operations

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// TestOperation_AnotherClock has a controller take over a merge from one whose clock was an hour ahead: the pauses that
// the rate asks for get no longer by that.
func TestOperation_AnotherClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, 10, 10, 10, 10, 10)
		defer b.meta.Close()
		ahead := b.runner(b.meta)
		ahead.Now = func() time.Time { return time.Now().Add(time.Hour) }
		stop := b.run(ahead)
		o := b.order(50, metadata.OperationMerge)
		o.Rate = 5 // an extent every two seconds
		_, err := ahead.Start(t.Context(), o)
		b.ok(err)
		time.Sleep(time.Second)
		stop()
		began := time.Now()
		defer b.run(b.runner(b.meta))()
		if o := b.wait(50); o.State != metadata.OperationDone || o.Done != 50 {
			t.Errorf("it is %+v", o)
		}
		if took := time.Since(began); took < 6*time.Second || took > 15*time.Second {
			t.Errorf("the other controller took %s for four extents, two seconds each", took)
		}
	})
}

// TestOperation_SaysWhoHasNotHeard: one that is done says which output hosts may still hand out what it took.
func TestOperation_SaysWhoHasNotHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, 5)
		defer b.meta.Close()
		b.deaf = []core.HostID{"o1"}
		r := b.runner(b.meta)
		defer b.run(r)()
		_, err := r.Start(t.Context(), b.order(50, metadata.OperationPurge))
		b.ok(err)
		if o := b.wait(50); o.State != metadata.OperationDone || o.Done != 5 || o.Error != "output hosts [o1] have not confirmed it yet" {
			t.Errorf("it is %+v", o)
		}
	})
}

// TestOperation_SaysWhomItDoesNotReach: one that is done names the controllers that may be beyond a cut of the network,
// and may have made extents there.
func TestOperation_SaysWhomItDoesNotReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, 5)
		defer b.meta.Close()
		b.deaf, b.beyond = []core.HostID{"o1"}, []core.HostID{"c2"}
		r := b.runner(b.meta)
		defer b.run(r)()
		_, err := r.Start(t.Context(), b.order(50, metadata.OperationPurge))
		b.ok(err)
		want := "output hosts [o1] have not confirmed it yet; controllers [c2] were not reached: messages that are published where they are, until the network is whole again, are not included; start it again then"
		if o := b.wait(50); o.State != metadata.OperationDone || o.Done != 5 || o.Error != want {
			t.Errorf("it is %+v", o)
		}
	})
}
