package outputhost

import (
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/metadata"
)

// chain makes a group with the shares of n extents of a chain.
func (b *harness) chain(n int) (r metadata.GroupRecord, list []*pb.Assignment) {
	b.t.Helper()
	r, first := b.group()
	for i := range n {
		e, err := convert.Extent(first.Extent)
		if err != nil {
			b.t.Fatal(err)
		}
		e.ID, e.Chain = core.ExtentID{ID: core.NewID(time.Now())}, uint64(i+1)
		list = append(list, &pb.Assignment{Group: first.Group, Name: first.Name, Extent: convert.ExtentToProto(e), Counter: 1, By: first.By})
	}
	return r, list
}

// read gives each share two records, and the end when there is one.
func (g *group) read(t *testing.T, ends map[uint64]bool) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.mu.shares {
		if s.rules.ReadFrom() == 1 {
			if err := s.rules.Offer(dispatch.Records{Base: 1, Offsets: []uint32{0, 1, 2}, Bytes: []byte("xy")}, g.h.deps.Now()); err != nil {
				t.Fatal(err)
			}
		}
		if ends[s.extent.Chain] {
			s.end, s.l = true, 2
			g.touchLocked(s)
		}
	}
}

// taken is what a consumer gets now: the places of the chain, a record each.
func (g *group) taken(most int) (places []uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(places) < most {
		g.takeChangedLocked()
		g.orderLocked()
		g.mu.rules.Want(dispatch.Credit{Messages: 1 << 20, Bytes: 1 << 40}, true)
		runs := g.mu.rules.Take(1, dispatch.Credit{Messages: most - len(places), Bytes: 1 << 20}, g.h.deps.Now(), nil)
		if len(runs) == 0 {
			break
		}
		for _, r := range runs {
			for range r.Count {
				places = append(places, shareOf(r.Share).extent.Chain)
			}
		}
	}
	return places
}

func equal(got []uint64, want ...uint64) bool { return slices.Equal(got, want) }

func TestOrder_OneExtentAfterAnother(t *testing.T) {
	b := newHarness(t)
	_, list := b.chain(3)
	list[0], list[2] = list[2], list[0]
	if err := b.give(1, list...); err != nil {
		t.Fatal(err)
	}
	g := b.groupList()[0]
	g.read(t, map[uint64]bool{1: true, 3: true})
	if got := g.taken(3); !equal(got, 1, 1, 2) {
		t.Errorf("got %v", got)
	}
	if got := g.taken(10); !equal(got, 2) {
		t.Errorf("got %v: the second extent has no end yet", got)
	}
	g.read(t, map[uint64]bool{2: true})
	if got := g.taken(10); !equal(got, 3, 3) {
		t.Errorf("got %v", got)
	}
}

// TestOrder_LaterOnesWaitForWhatIsMissing: a share that cannot be resumed holds up those behind it, also those that
// were there before.
func TestOrder_LaterOnesWaitForWhatIsMissing(t *testing.T) {
	b := newHarness(t)
	r, list := b.chain(3)
	if err := b.give(1, list...); err != nil {
		t.Fatal(err)
	}
	g := b.groupList()[0]
	g.read(t, map[uint64]bool{1: true, 2: true, 3: true})
	// Another host had the second share in between, and its checkpoint cannot be read.
	e, err := convert.Extent(list[1].Extent)
	if err != nil {
		t.Fatal(err)
	}
	broken := metadata.CheckpointKey(r.ID, e.ID, r.Epoch, core.RunID{ID: core.NewID(time.Now())})
	if err := b.meta.Put(t.Context(), metadata.Checkpoints, broken, []byte("?"), time.Now(), 0, metadata.One); err != nil {
		t.Fatal(err)
	}
	list[1].Counter = 2
	if err := b.give(2, list...); err == nil {
		t.Fatal("a broken checkpoint was resumed from")
	}
	if got := g.taken(10); !equal(got, 1, 1) {
		t.Errorf("got %v, want nothing behind the share that is missing", got)
	}
	if err := b.meta.Remove(t.Context(), metadata.Checkpoints, broken, time.Now().Add(time.Second), metadata.One); err != nil {
		t.Fatal(err)
	}
	if err := b.give(3, list...); err != nil {
		t.Fatal(err)
	}
	g.read(t, map[uint64]bool{1: true, 2: true, 3: true})
	if got := g.taken(10); !equal(got, 2, 2, 3, 3) {
		t.Errorf("got %v", got)
	}
}

// TestOrder_ShareThatAnotherHostHad: the lease is confirmed by a list that names another assignment of the second
// share. The shares behind that one wait until it is resumed.
func TestOrder_ShareThatAnotherHostHad(t *testing.T) {
	b := newHarness(t)
	c := &fakeController{id: "c"}
	b.controllers(c)
	r, list := b.chain(3)
	c.set(r.Queue, list...)
	b.compare()
	g := b.groupList()[0]
	g.read(t, map[uint64]bool{1: true, 2: true, 3: true})
	moved := proto.CloneOf(list[1])
	moved.Counter++
	c.set(r.Queue, list[0], moved, list[2])
	if _, err := (leased{b.Host}).Confirm(t.Context(), b.deps.Members.Hosts("controller")[0]); err != nil {
		t.Fatal(err)
	}
	if got := g.taken(10); !equal(got, 1, 1) {
		t.Errorf("got %v, want nothing behind the share that is to be resumed", got)
	}
	b.compare()
	g.read(t, map[uint64]bool{1: true, 2: true, 3: true})
	if got := g.taken(10); !equal(got, 2, 2, 3, 3) {
		t.Errorf("once it is resumed: got %v", got)
	}
}

// TestOrder_ChainThatIsTaken: a list lacks all shares of a chain. None of them hands out anything while earlier ones of
// it are gone already.
func TestOrder_ChainThatIsTaken(t *testing.T) {
	const n = 100
	for version := uint64(1); version < 20; version += 2 {
		b := newHarness(t)
		_, list := b.chain(n)
		if err := b.give(version, list...); err != nil {
			t.Fatal(err)
		}
		g := b.groupList()[0]
		ends := make(map[uint64]bool)
		for i := range uint64(n) {
			ends[i+1] = true
		}
		g.read(t, ends)
		var taken []uint64
		var consumer sync.WaitGroup
		consumer.Go(func() {
			for more := true; more; {
				got := g.taken(1)
				taken = append(taken, got...)
				more = len(got) > 0
			}
		})
		if err := b.give(version + 1); err != nil {
			t.Fatal(err)
		}
		consumer.Wait()
		for i, place := range taken {
			if place != uint64(i/2+1) {
				t.Fatalf("message %d is of place %d, after %v", i, place, taken[:i])
			}
		}
	}
}
