package outputhost

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// successors are owners of one share, one after the other.
type successors struct {
	t       *testing.T
	meta    metadata.Store
	a       *pb.Assignment
	counter uint64
}

func newSuccessors(t *testing.T) (*successors, *harness) {
	meta := memory.New()
	t.Cleanup(func() { meta.Close() })
	first := harnessOn(t, meta, "first")
	_, a := first.group()
	return &successors{t: t, meta: meta, a: a}, first
}

// host is one more output host.
func (x *successors) host(id core.HostID) *harness { return harnessOn(x.t, x.meta, id) }

// own makes the host the share's owner, which reads ten messages.
func (x *successors) own(b *harness) (*group, *share) {
	x.t.Helper()
	x.counter++
	x.a.Counter = x.counter
	if err := b.give(x.counter, x.a); err != nil {
		x.t.Fatal(err)
	}
	g := b.groupList()[0]
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.mu.shares[core.ExtentID{ID: core.ID(x.a.Extent.Id)}]
	if s == nil {
		x.t.Fatal("the host has no share")
	}
	from := s.rules.ReadFrom()
	r := dispatch.Records{Base: from, Offsets: make([]uint32, 11-from+1), Bytes: make([]byte, 11-from)}
	for i := range r.Offsets {
		r.Offsets[i] = uint32(i)
	}
	if err := s.rules.Offer(r, b.deps.Now()); err != nil {
		x.t.Fatal(err)
	}
	return g, s
}

// takes hands out up to n messages, and answers them as seq@attempt.
func (x *successors) takes(b *harness, g *group, n int) (out []string) {
	x.t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.rules.Want(dispatch.Credit{Messages: 1 << 20, Bytes: 1 << 40}, true)
	for _, r := range g.mu.rules.Take(1, dispatch.Credit{Messages: n, Bytes: 1 << 20}, b.deps.Now(), nil) {
		for i := range core.Seq(r.Count) {
			out = append(out, fmt.Sprintf("%d@%d", r.Base+i, r.Attempt))
		}
	}
	return out
}

// returns gives a message back that an owner before handed out as its first attempt.
func (x *successors) returns(b *harness, g *group, s *share, seq core.Seq) {
	x.t.Helper()
	g.mu.Lock()
	by, _ := s.rules.Holder(seq)
	bad := s.rules.Return(by, seq, 1, 1, b.deps.Now(), nil)
	g.mu.Unlock()
	if len(bad) > 0 {
		x.t.Fatalf("message %d is not taken back: %v", seq, bad)
	}
	b.saveAll()
}

// gives has the host give the share away as a controller has it do.
func (x *successors) gives(b *harness, g *group, s *share) {
	x.t.Helper()
	x.counter++
	b.send(list("controller", x.counter, queueOf(x.a)))
	if !s.removed {
		x.t.Fatal("the share is still here")
	}
}

func (x *successors) want(what string, got []string, want ...string) {
	x.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		x.t.Errorf("%s hands out %v, want %v", what, got, want)
	}
}

// acksLate has the host settle a message of a share that it gave away, and save that.
func (x *successors) acksLate(b *harness, g *group, s *share, seq core.Seq) {
	x.t.Helper()
	g.mu.Lock()
	bad := s.ackLateLocked(seq, 1, 1, b.deps.Now(), nil)
	g.mu.Unlock()
	if len(bad) > 0 {
		x.t.Fatalf("a late ack of message %d is refused: %v", seq, bad)
	}
	b.saveAll()
}

// merges has the host hear of what others saved.
func (x *successors) merges(g *group) {
	x.t.Helper()
	time.Sleep(mergeEvery)
	if err := g.mergeOthers(x.t.Context()); err != nil {
		x.t.Fatal(err)
	}
}

// covered is until when the row of a host covers that of one before.
func (x *successors) covered(b *harness, s *share, before *harness) int64 {
	x.t.Helper()
	for k, row := range b.left(s) {
		if _, run, _ := metadata.CheckpointOf(k); run == b.deps.Members.Self().Run {
			state, err := dispatch.DecodeState(row.Value)
			if err != nil {
				x.t.Fatal(err)
			}
			return dispatch.CoveredUntil([]dispatch.Saved{{Version: versionOf(row), State: state}}, before.deps.Members.Self().Run)
		}
	}
	x.t.Fatal("the owner has no row")
	return 0
}

// rows are those of the share.
func (x *successors) rows(b *harness, s *share) int { return len(b.left(s)) }

// TestResume_WhatWasReturnedIsNotLocked: a message was handed out by an owner and given back at the next one, which
// stopped before it removed the row of the first. The owner after them hands it out at once, and as a first attempt.
func TestResume_WhatWasReturnedIsNotLocked(t *testing.T) {
	x, first := newSuccessors(t)
	g, _ := x.own(first)
	x.want("the first owner", x.takes(first, g, 3), "1@1", "2@1", "3@1")
	first.saveAll()

	second := x.host("second")
	g, s := x.own(second)
	x.returns(second, g, s, 2)

	third := x.host("third")
	g, s = x.own(third)
	if n := x.rows(third, s); n != 2 {
		t.Fatalf("%d rows are left, want both", n)
	}
	x.want("the third owner", x.takes(third, g, 2), "2@1", "4@1")
	third.saveAll()

	// a read of one copy that has not heard of the second owner: its row is gone by now, that of the first is not
	for k := range third.left(s) {
		if _, run, _ := metadata.CheckpointOf(k); run == second.deps.Members.Self().Run {
			if err := x.meta.Remove(t.Context(), metadata.Checkpoints, k, time.Now().Add(time.Hour), metadata.One); err != nil {
				t.Fatal(err)
			}
		}
	}
	x.returns(third, g, s, 4)
	fourth := x.host("fourth")
	g, _ = x.own(fourth)
	x.want("the fourth owner", x.takes(fourth, g, 2), "4@1", "5@1")
}

// TestResume_LateSettlementsAreNoNewLocks: the owner before gave the share away, and its consumers ack there what they
// have. So its row is a later one than the next owner resumed from, and still tells nothing that one did not know.
func TestResume_LateSettlementsAreNoNewLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, first := newSuccessors(t)
		g, s := x.own(first)
		x.takes(first, g, 3)
		x.gives(first, g, s)

		second := x.host("second")
		second.set(second.deps.Members.Self(), first.deps.Members.Self()) // it lives
		next, taken := x.own(second)
		for _, seq := range []core.Seq{1, 3} { // two versions after the first one
			x.acksLate(first, g, s, seq)
			x.merges(next)
		}
		x.returns(second, next, taken, 2)

		third := x.host("third")
		g, s = x.own(third)
		if n := x.rows(third, s); n != 2 {
			t.Fatalf("%d rows are left, want both", n)
		}
		x.want("the third owner", x.takes(third, g, 2), "2@1", "4@1")
	})
}

// TestResume_LateStateThatIsSavedTwice: the state of a share that was given away is written once more as it was. That
// is the same version, from which the next owner has resumed, and it tells nothing that one did not know.
func TestResume_LateStateThatIsSavedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, first := newSuccessors(t)
		g, s := x.own(first)
		x.takes(first, g, 3)
		x.gives(first, g, s)

		second := x.host("second")
		next, taken := x.own(second)
		g.mu.Lock()
		g.changeLateLocked(s)
		g.mu.Unlock()
		first.saveAll()
		x.merges(next)
		x.returns(second, next, taken, 2)

		third := x.host("third")
		g, s = x.own(third)
		if n := x.rows(third, s); n != 2 {
			t.Fatalf("%d rows are left, want both", n)
		}
		x.want("the third owner", x.takes(third, g, 2), "2@1", "4@1")
	})
}

// TestResume_LateSettlementsOfWhatIsSettled: a late ack is of a message that the next owner has settled, too. Its row
// is written again all the same, because it knows the later version by then.
func TestResume_LateSettlementsOfWhatIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, first := newSuccessors(t)
		g, s := x.own(first)
		x.takes(first, g, 3)
		x.gives(first, g, s)

		second := x.host("second")
		next, taken := x.own(second)
		x.returns(second, next, taken, 2)
		next.mu.Lock()
		taken.rules.AckProven(1, time.Now())
		next.mu.Unlock()
		second.saveAll()
		x.acksLate(first, g, s, 1)
		x.merges(next)
		second.saveAll()

		third := x.host("third")
		g, _ = x.own(third)
		x.want("the third owner", x.takes(third, g, 2), "2@1", "4@1")
	})
}

// TestResume_NewsOfAnOwnerThatLivedOnCount: an owner was silent, another one resumed the share, and only then a row
// came that the first one had taken before. Nothing of it is forgotten by the one after them, as if nobody had resumed.
func TestResume_NewsOfAnOwnerThatLivedOnCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, first := newSuccessors(t)
		g, _ := x.own(first)
		x.takes(first, g, 1)
		first.saveAll()
		x.takes(first, g, 1)

		second := x.host("second")
		next, taken := x.own(second)
		first.saveAll()
		time.Sleep(mergeEvery)
		if err := next.mergeOthers(t.Context()); err != nil {
			t.Fatal(err)
		}
		x.returns(second, next, taken, 1)
		third := x.host("third")
		g, _ = x.own(third)
		x.want("the third owner", x.takes(third, g, 2), "3@1", "4@1")
	})
}

// TestResume_CoversEndWithTheRows: a row covers nothing once an owner has resumed the share, and read that the rows of
// all owners before are gone. A read of one copy does not tell that.
func TestResume_CoversEndWithTheRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, first := newSuccessors(t)
		g, _ := x.own(first)
		x.takes(first, g, 3)
		first.saveAll()
		second := x.host("second")
		g, s := x.own(second)
		x.returns(second, g, s, 2)
		if x.covered(second, s, first) == 0 {
			t.Error("the row of the owner before is not covered")
		}
		for range 4 {
			x.merges(g)
			second.saveAll()
		}
		x.returns(second, g, s, 3)
		if n := x.rows(second, s); n != 1 || x.covered(second, s, first) == 0 {
			t.Errorf("%d rows are left, and the first owner is covered until %d", n, x.covered(second, s, first))
		}
		x.gives(second, g, s)
		g, s = x.own(second)
		x.returns(second, g, s, 1)
		if n := x.covered(second, s, first); n != 0 {
			t.Errorf("the first owner is covered until %d, and has no row", n)
		}
	})
}

// TestResume_RowsOfTheEpochBefore: a rewind leaves a share of merged messages as it is, and its owner writes to the row
// of another epoch. The one of before counts, too, and tells nothing of locks any more.
func TestResume_RowsOfTheEpochBefore(t *testing.T) {
	x, first := newSuccessors(t)
	g, s := x.own(first)
	x.takes(first, g, 2)
	first.saveAll()
	g.mu.Lock()
	s.extent.Queue = core.QueueID{ID: core.NewID(time.Now())}
	g.mu.record.Epoch = 1
	if readers := g.rewindLocked(0); len(readers) > 0 {
		t.Fatal("the share is dropped")
	}
	g.mu.Unlock()
	x.returns(first, g, s, 1)
	if n := x.rows(first, s); n != 2 {
		t.Fatalf("%d rows are left, want both", n)
	}
	next := metadata.CheckpointKey(g.id, s.extent.ID, 1, core.RunID{ID: core.NewID(time.Now())})
	from, err := first.savedState(t.Context(), next, g.counts(s.extent, 1), ownerReads, 0)
	if err != nil || from.state.Pending() != 1 || len(from.others) != 2 {
		t.Errorf("%d messages are under way, by %d rows, %v; want the one that was not given back", from.state.Pending(), len(from.others), err)
	}
}
