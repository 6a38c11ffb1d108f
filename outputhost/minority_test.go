package outputhost

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/membership"
)

// cutBubble is leaseBubble.
func cutBubble(t *testing.T, others []membership.Host, f func(t *testing.T, x *leasedHarness)) {
	synctest.Test(t, func(t *testing.T) { runLeased(t, others, f) })
}

// cutExtent is an assignment of another extent of the group, which a controller made without a majority.
func (x *leasedHarness) cutExtent() *pb.Assignment {
	x.g.mu.Lock()
	defer x.g.mu.Unlock()
	for _, s := range x.g.mu.shares {
		e := s.extent
		e.ID.ID = core.NewID(time.Now())
		return &pb.Assignment{Group: x.g.id.ID[:], Name: x.g.name, Extent: convert.ExtentToProto(e), Counter: 1, By: "ctl"}
	}
	panic("no share")
}

// minority has ctl push its list of such extents.
func (x *leasedHarness) minority(counter uint64, all ...*pb.Assignment) *pb.ListAnswer {
	l := list("ctl", counter, x.g.queue, all...)
	l.Minority = true
	return x.send(l)[0]
}

// offer gives a share of the host messages.
func (x *leasedHarness) offer(a *pb.Assignment) {
	x.t.Helper()
	x.g.mu.Lock()
	defer x.g.mu.Unlock()
	s := x.g.mu.shares[core.ExtentID{ID: core.ID(a.Extent.Id)}]
	if s == nil {
		x.t.Fatal("the host does not have the share")
	}
	r := dispatch.Records{Base: 1, Offsets: make([]uint32, 1001), Bytes: make([]byte, 1000)}
	for i := range r.Offsets {
		r.Offsets[i] = uint32(i)
	}
	if err := s.rules.Offer(r, x.deps.Now()); err != nil {
		x.t.Fatal(err)
	}
}

// TestMinority_ListsAreBesideTheQueues: neither drops what the other one has.
func TestMinority_ListsAreBesideTheQueues(t *testing.T) {
	cutBubble(t, others("ctl", "out2"), func(t *testing.T, x *leasedHarness) {
		x.ctl.keeps.Store(true)
		before := proto.Clone(x.cutExtent()).(*pb.Assignment)
		x.g.mu.Lock()
		for id := range x.g.mu.shares {
			before.Extent.Id = id.ID[:]
		}
		x.g.mu.Unlock()
		a, b := x.cutExtent(), x.cutExtent()
		x.minority(5, a, b)
		if !x.has(a) || !x.has(b) || !x.has(before) {
			t.Fatal("the list of the minority is not applied beside the queue's")
		}
		x.list(x.ctl, x.g) // it names them all: they move to the queue's list
		x.minority(7, a)
		if !x.has(a) || !x.has(b) || !x.has(before) {
			t.Error("the minority's list dropped what is in the queue's")
		}
		x.send(list("ctl", 1<<40, x.g.queue, before))
		if !x.has(a) || x.has(b) || !x.has(before) {
			t.Error("the queue's list did not drop what it had, or dropped what it never had")
		}
		if answer := x.minority(6, a, b); answer.Newest.Counter != 7 || x.has(b) {
			t.Errorf("an older list counts: %v", answer)
		}
		x.minority(8)
		if x.has(a) || !x.has(before) {
			t.Error("an empty list of the minority did not drop its share, or dropped others")
		}
	})
}

// TestMinority_OnlyItsMakerKeepsALease: the group delivers from the extents of the cut, and not from those of before,
// until the maker ends it.
func TestMinority_OnlyItsMakerKeepsALease(t *testing.T) {
	cutBubble(t, others("ctl", "ctl2", "out2"), func(t *testing.T, x *leasedHarness) {
		time.Sleep(3 * time.Second)
		x.ctl.lost.Store(true)
		x.set(x.mu.silent, "ctl2", "out2")
		time.Sleep(dispatch.OwnerLease + stopsWithin)
		if x.gives() {
			t.Fatal("it hands out without a lease")
		}
		a := x.cutExtent()
		x.ctl.keeps.Store(true)
		x.minority(5, a)
		if n := x.shareCount(); n != 1 || !x.has(a) {
			t.Fatalf("the host has %d shares, want that of the cut", n)
		}
		x.offer(a)
		for range 100 {
			if !x.gives() {
				t.Fatal("it hands out nothing of what was published in the cut")
			}
			time.Sleep(100 * time.Millisecond)
		}
		x.ctl.keeps.Store(false)
		time.Sleep(beatEvery + 4*beatTimeout) // a beat that has asked before, and the next one
		if x.gives() {
			t.Error("it hands out although the maker has ended it")
		}
		time.Sleep(dispatch.OwnerLease)
		if x.has(a) {
			t.Error("it keeps the share after the lease")
		}
		x.ctl.keeps.Store(true)
		if x.minority(5, a); !x.has(a) {
			t.Error("the same list does not bring the share back")
		}
	})
}

// TestMinority_OtherRunsOfTheMakerKeepNothing: the run that made the list is gone.
func TestMinority_OtherRunsOfTheMakerKeepNothing(t *testing.T) {
	cutBubble(t, others("ctl", "out2"), func(t *testing.T, x *leasedHarness) {
		a := x.cutExtent()
		x.ctl.keeps.Store(true)
		x.minority(5, a)
		time.Sleep(10 * time.Second)
		if !x.has(a) {
			t.Fatal("it has lost the share")
		}
		x.ctl.again.Store(true)
		time.Sleep(dispatch.OwnerLease + beatEvery + beatTimeout)
		if x.has(a) {
			t.Error("it keeps the share")
		}
	})
}
