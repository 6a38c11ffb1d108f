package outputhost

import (
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
)

// TestRelist_HostThatMissedPushes asks for the lists that differ, page by page, and gives up what is not named any
// more.
func TestRelist_HostThatMissedPushes(t *testing.T) {
	b := newHarness(t)
	c := &fakeController{id: "c"}
	b.controllers(c)
	var all []*pb.Assignment
	for range 5 {
		_, a := b.group()
		all = append(all, a)
		c.set(queueOf(a), a)
	}
	if b.compare(); b.shareCount() != 5 || c.pages.Load() != 3 || c.asked.Load() != 5 {
		t.Fatalf("at its start it has %d of 5 shares after %d pages and %d lists", b.shareCount(), c.pages.Load(), c.asked.Load())
	}
	if b.compare(); c.asked.Load() != 5 {
		t.Errorf("it asks for %d lists that it has", c.asked.Load()-5)
	}
	c.asked.Store(0)
	c.set(queueOf(all[0]))
	c.forget(queueOf(all[1]))
	_, fresh := b.group()
	c.set(queueOf(fresh), fresh)
	if b.compare(); c.asked.Load() != 3 {
		t.Errorf("it asks for %d lists, want the empty one, the one that is not named, and the new one", c.asked.Load())
	}
	for i, a := range append(all, fresh) {
		if b.has(a) != (i > 1) {
			t.Errorf("it has share %d: %t", i, b.has(a))
		}
	}
}

// TestRelist_ShareThatIsMissing comes back although its list is known: the host lost it, or could not resume it.
func TestRelist_ShareThatIsMissing(t *testing.T) {
	b := newHarness(t)
	c := &fakeController{id: "c"}
	b.controllers(c)
	_, one := b.group()
	_, two := b.group()
	c.set(queueOf(two), two)
	b.deps.Meta = &failing{Store: b.meta}
	if a := b.send(c.set(queueOf(one), one)); a[0].Failed == nil || b.has(one) {
		t.Fatalf("answer %v though no row can be read", a[0])
	}
	b.deps.Meta = b.meta
	if b.compare(); !b.has(one) || !b.has(two) {
		t.Error("a share that could not be resumed does not come with the next comparison")
	}
	g := b.groupsOf(queueOf(two))[0]
	g.giveAway(g.mu.shares[core.ExtentID{ID: core.ID(two.Extent.Id)}], b.deps.Now())
	if b.compare(); !b.has(two) {
		t.Error("a share that the host gave up by itself does not come with the next comparison")
	}
}

// TestRelist_TwoControllers have the lists of different queues: neither takes what the other gave. When one is gone,
// the other's word counts for its queues.
func TestRelist_TwoControllers(t *testing.T) {
	b := newHarness(t)
	first, second := &fakeController{id: "c1"}, &fakeController{id: "c2"}
	b.controllers(first, second)
	_, one := b.group()
	_, two := b.group()
	_, three := b.group()
	first.set(queueOf(one), one)
	second.set(queueOf(two), two)
	second.set(queueOf(three), three)
	for range 3 {
		b.compare()
		if !b.has(one) || !b.has(two) || !b.has(three) {
			t.Fatal("a controller took what another one gave")
		}
	}
	second.forget(queueOf(three))
	if b.compare(); !b.has(one) || !b.has(two) || b.has(three) {
		t.Error("a share is kept that its controller does not name")
	}
	c1, _ := membership.Find(b.deps.Members, "c1")
	b.set(b.deps.Members.Self(), c1)
	first.mu.Lock()
	first.mu.foreign = map[core.QueueID]bool{queueOf(two): true}
	first.mu.Unlock()
	if b.compare(); !b.has(two) {
		t.Error("a share was given up though nobody who is responsible for its queue said so")
	}
	first.mu.Lock()
	first.mu.foreign = nil
	first.mu.Unlock()
	if b.compare(); b.has(two) || !b.has(one) {
		t.Error("a share of a controller that is gone is kept though the one that took over does not name it")
	}
}

// TestRelist_QueueThatNobodyNames was handed over: the controller that made the list answers none, and all others are
// asked.
func TestRelist_QueueThatNobodyNames(t *testing.T) {
	b := newHarness(t)
	first, second := &fakeController{id: "c1"}, &fakeController{id: "c2"}
	b.controllers(first, second)
	_, a := b.group()
	second.set(queueOf(a), a)
	b.compare()
	second.forget(queueOf(a))
	foreign := func(c *fakeController, is bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.mu.foreign = map[core.QueueID]bool{queueOf(a): is}
	}
	foreign(first, true)
	foreign(second, true)
	if b.compare(); !b.has(a) {
		t.Fatal("a share was given up though nobody is responsible for its queue")
	}
	second.ready.Store(false)
	if err := b.askShares(t.Context()); err == nil || !b.has(a) {
		t.Errorf("%v; a share was given up though the controller that made the list is away: %t", err, !b.has(a))
	}
	foreign(first, false)
	if err := b.askShares(t.Context()); err == nil || b.has(a) {
		t.Errorf("%v; a share is kept though the controller that is responsible answers a list without it: %t", err, b.has(a))
	}
}

// TestRelist_ConfirmGivesUpAndResumesLater: the lease is confirmed without waiting for what is new.
func TestRelist_ConfirmGivesUpAndResumesLater(t *testing.T) {
	b := newHarness(t)
	c := &fakeController{id: "c"}
	b.controllers(c)
	_, gone := b.group()
	_, stays := b.group()
	_, moved := b.group() // to another host, and back
	_, fresh := b.group()
	for _, a := range []*pb.Assignment{gone, stays, moved} {
		c.set(queueOf(a), a)
	}
	b.compare()
	c.forget(queueOf(gone))
	c.set(queueOf(fresh), fresh)
	again := proto.CloneOf(moved)
	again.Counter++
	c.set(queueOf(again), again)
	named, err := (leased{b.Host}).Confirm(t.Context(), b.deps.Members.Hosts("controller")[0])
	if err != nil {
		t.Fatal(err)
	}
	for queue, version := range b.versions() {
		if named[queue] != version {
			t.Errorf("the list of queue %s is of version %v, it was named as %v", queue, version, named[queue])
		}
	}
	if b.has(gone) || !b.has(stays) || b.has(moved) || b.has(fresh) {
		t.Errorf("confirmed it has the share that was taken: %t, that stays: %t, that another host had in between: %t, the new one: %t", b.has(gone), b.has(stays), b.has(moved), b.has(fresh))
	}
	if b.compare(); !b.has(fresh) || !b.has(stays) || !b.has(moved) {
		t.Error("the new share does not come after that")
	}
	if s := b.groupsOf(queueOf(moved))[0].mu.shares[core.ExtentID{ID: core.ID(moved.Extent.Id)}]; s.generation != again.Counter {
		t.Error("the share that another host had in between is not resumed anew")
	}
}

// TestRelist_HostThatIsNoControllerAnyMore: nobody can ask it for its queues. The word of the others counts.
func TestRelist_HostThatIsNoControllerAnyMore(t *testing.T) {
	b := newHarness(t)
	first, second := &fakeController{id: "c1"}, &fakeController{id: "c2"}
	b.controllers(first, second)
	_, one := b.group()
	second.set(queueOf(one), one)
	if b.compare(); !b.has(one) {
		t.Fatal("it has no share")
	}
	c1, _ := membership.Find(b.deps.Members, "c1")
	c2, _ := membership.Find(b.deps.Members, "c2")
	c2.Roles = []string{"store"}
	b.set(b.deps.Members.Self(), c1, c2)
	if b.compare(); b.has(one) {
		t.Error("a share is kept that no controller names")
	}
}

// TestRelist_PageThatComesAgain ends the comparison with an error.
func TestRelist_PageThatComesAgain(t *testing.T) {
	b := newHarness(t)
	c := &fakeController{id: "c", stuck: true}
	b.controllers(c)
	for range 2 * fakePage {
		_, a := b.group()
		c.set(queueOf(a), a)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := b.askShares(ctx); err == nil || ctx.Err() != nil || c.pages.Load() != 2 {
		t.Errorf("after %d pages: %v", c.pages.Load(), err)
	}
}
