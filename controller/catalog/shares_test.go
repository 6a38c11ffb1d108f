package catalog

import (
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

var sharesNow = time.Unix(1_700_000_000, 0)

func newSharesForTest() *Shares {
	return NewShares(HostRun{"controller", core.RunID{ID: core.ID{1}}}, sharesNow)
}

func ownerOf(i byte) HostRun {
	return HostRun{core.HostID(fmt.Sprint("o", i)), core.RunID{ID: core.ID{i, 1}}}
}

// decision gives the n-th share of the queue q to an owner.
func decision(q, n byte, o HostRun) Decision {
	return Decision{Share: Share{core.GroupID{ID: core.ID{q}}, core.ExtentID{ID: core.ID{q, n}}}, Queue: queueID(q), Name: "g", Counter: 1, By: "controller", Owner: o}
}

func queueID(q byte) core.QueueID { return core.QueueID{ID: core.ID{q}} }

// due are the queues that an owner is to be sent.
func (x *Shares) due(o HostRun) []core.QueueID {
	out, _ := x.Due(o, nil, func(core.QueueID) bool { return false })
	x.EndPush(o)
	return out
}

// take has the owner confirm all that is due, and answers its lists.
func (x *Shares) take(o HostRun) map[core.QueueID]List {
	out := make(map[core.QueueID]List)
	for _, queue := range x.due(o) {
		l := x.List(o, queue, core.ListVersion{})
		out[queue] = l
		x.Answered(o, queue, l.Version, l.Version, true)
	}
	return out
}

// TestShares_ChangeIsOneList: after a change only the list of its queue is due, once.
func TestShares_ChangeIsOneList(t *testing.T) {
	x, o := newSharesForTest(), ownerOf(1)
	for q := byte(1); q <= 10; q++ {
		for n := range byte(5) {
			x.Set(decision(q, n, o))
		}
	}
	if n := len(x.take(o)); n != 10 {
		t.Fatalf("%d lists at first, want 10", n)
	}
	x.Set(decision(3, 9, o))
	got := x.take(o)
	if l, ok := got[queueID(3)]; len(got) != 1 || !ok || len(l.Shares) != 6 {
		t.Errorf("after a change %v are sent, want one list with 6 shares", got)
	}
	if n := len(x.due(o)); n != 0 {
		t.Errorf("%d lists are due though all are confirmed", n)
	}
}

// TestShares_NewerListIsRaisedAbove: a host has a list of a controller whose clock was ahead.
func TestShares_NewerListIsRaisedAbove(t *testing.T) {
	x, o := newSharesForTest(), ownerOf(1)
	x.Set(decision(1, 1, o))
	sent := x.List(o, queueID(1), core.ListVersion{}).Version
	ahead := core.ListVersion{Counter: sent.Counter + 1<<50, Controller: "other"}
	x.Answered(o, queueID(1), sent, ahead, true)
	if n := len(x.due(o)); n != 1 {
		t.Fatalf("%d lists are due, want the one that was refused", n)
	}
	again := x.List(o, queueID(1), core.ListVersion{})
	if again.Version.Compare(ahead) <= 0 || len(again.Shares) != 1 {
		t.Errorf("version %+v, want it above %+v", again.Version, ahead)
	}
	if x.Answered(o, queueID(1), again.Version, again.Version, true); len(x.due(o)) != 0 {
		t.Error("it is due though it is confirmed")
	}
	if asked := x.List(o, queueID(1), core.ListVersion{Counter: again.Version.Counter, Controller: "zzz"}); asked.Version.Counter <= again.Version.Counter {
		t.Errorf("who asks with a newer version gets %+v", asked.Version)
	}
	if none := x.List(o, queueID(9), ahead); len(none.Shares) != 0 || none.Version.Compare(ahead) <= 0 {
		t.Errorf("the list of a queue of which it owns nothing is %+v", none)
	}
}

// TestShares_EmptyListIsForgottenOnceConfirmed: it is named and sent until then.
func TestShares_EmptyListIsForgottenOnceConfirmed(t *testing.T) {
	x, o := newSharesForTest(), ownerOf(1)
	d := decision(1, 1, o)
	x.Set(d)
	x.take(o)
	x.Drop(d.Share)
	if page, _ := x.Versions(o, core.QueueID{}, 10); len(page) != 1 {
		t.Fatalf("%d lists are named, want the empty one", len(page))
	}
	if got := x.take(o); len(got) != 1 || len(got[queueID(1)].Shares) != 0 {
		t.Fatalf("%v is sent, want an empty list", got)
	}
	if page, _ := x.Versions(o, core.QueueID{}, 10); len(page)+len(x.mu.queues) != 0 {
		t.Errorf("%d lists are named, %d are kept after the empty one was confirmed", len(page), len(x.mu.queues))
	}
	last := x.mu.counter
	x.Set(d)
	if v := x.List(o, queueID(1), core.ListVersion{}).Version; v.Counter <= last {
		t.Errorf("the next list has version %d, want it above %d", v.Counter, last)
	}
}

// TestShares_VersionsInPages: all lists are named once, in the order of their queues, at a bound that just fits too.
func TestShares_VersionsInPages(t *testing.T) {
	x, o := newSharesForTest(), ownerOf(1)
	for q := byte(200); q > 0; q-- {
		x.Set(decision(q, 1, o))
		x.Set(decision(q, 2, ownerOf(2)))
	}
	for _, limit := range []int{1, 7, 199, 200, 201} {
		var after core.QueueID
		seen := 0
		for more := true; more; {
			var page []QueueVersion
			page, more = x.Versions(o, after, limit)
			for _, v := range page {
				if seen++; v.Queue != queueID(byte(seen)) {
					t.Fatalf("limit %d: %s is at %d", limit, v.Queue, seen)
				}
				after = v.Queue
			}
			if len(page) > limit || more && len(page) < limit {
				t.Fatalf("limit %d: a page of %d, more: %t", limit, len(page), more)
			}
		}
		if seen != 200 {
			t.Errorf("limit %d: %d lists are named, want 200", limit, seen)
		}
	}
}

// shown reports whether an owner is told of a share.
func (x *Shares) shown(d Decision) bool {
	for _, s := range x.List(d.Owner, d.Queue, core.ListVersion{}).Shares {
		if s.Share == d.Share {
			return true
		}
	}
	return false
}

func TestShares_MoveWaitsForTheQueueOfItsOldOwner(t *testing.T) {
	well := func(HostRun) bool { return true }
	until := sharesNow.Add(5 * time.Second)
	begin := func(well func(HostRun) bool) (x *Shares, from HostRun, to Decision) {
		x, from = newSharesForTest(), ownerOf(1)
		for q := byte(1); q <= 2; q++ {
			x.Set(decision(q, 1, from))
		}
		x.take(from)
		to = decision(1, 1, ownerOf(2))
		to.Counter = 2
		x.SetAll([]Decision{to}, well, until)
		return x, from, to
	}
	x, from, to := begin(well)
	old := x.List(from, queueID(1), core.ListVersion{}).Version
	if x.shown(to) {
		t.Fatal("the new owner is told before the old one")
	}
	x.Set(decision(2, 2, from))
	other := x.List(from, queueID(2), core.ListVersion{}).Version
	x.Answered(from, queueID(2), other, other, true)
	before := core.ListVersion{Counter: old.Counter - 1, Controller: old.Controller, Run: old.Run}
	if x.Answered(from, queueID(1), before, before, true); x.shown(to) {
		t.Error("the new owner is told after another list of the old one was confirmed")
	}
	x.take(to.Owner)
	if x.Answered(from, queueID(1), old, old, false); !x.shown(to) {
		t.Error("the new owner is not told although the old one has given the share away")
	}
	if n := len(x.due(to.Owner)); n != 1 {
		t.Errorf("%d lists of the new owner are due, want one", n)
	}

	x, from, to = begin(well)
	x.Forget(func(o HostRun) bool { return o == from })
	if x.EndMoves(until); x.shown(to) {
		t.Error("the new owner is told although the old one may hand out, and has time left")
	}
	if x.EndMoves(until.Add(1)); !x.shown(to) {
		t.Error("the new owner is not told although the old one's time is over")
	}
	x.Forget(func(o HostRun) bool { return o == from })
	if l := x.knownLocked(from, queueID(1)); l != nil {
		t.Error("the empty list of a run that is gone is kept")
	}

	x, from, to = begin(well)
	back := decision(1, 1, from)
	back.Counter = 3
	if x.SetAll([]Decision{back}, well, until); !x.shown(back) || len(x.mu.moving) != 0 {
		t.Error("a share that comes back to its owner waits for it")
	}

	x, from, to = begin(func(HostRun) bool { return false })
	if !x.shown(to) {
		t.Error("a share waits for an owner that is not well")
	}
}

// many are 50,000 shares of 1,000 queues, all of one owner.
func many(tb testing.TB) (x *Shares, o HostRun, one Decision) {
	x, o = newSharesForTest(), ownerOf(1)
	for range 1000 {
		queue, group := core.QueueID{ID: core.NewID(sharesNow)}, core.GroupID{ID: core.NewID(sharesNow)}
		for range 50 {
			one = Decision{Share: Share{group, core.ExtentID{ID: core.NewID(sharesNow)}}, Queue: queue, Name: "group", Counter: 1, By: "controller", Owner: o}
			x.Set(one)
		}
	}
	return x, o, one
}

// TestShares_Memory bounds what a share costs.
func TestShares_Memory(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	x, _, _ := many(t)
	runtime.GC()
	runtime.ReadMemStats(&after)
	per := (after.HeapAlloc - before.HeapAlloc) / uint64(x.Count())
	t.Logf("%d bytes a share", per)
	if per > 320 {
		t.Errorf("a share costs %d bytes, want at most 320", per)
	}
}

// TestShares_RunThatComesBackIsToldAgain: nobody confirmed that it gave its share away. It is told which lists are all.
func TestShares_RunThatComesBackIsToldAgain(t *testing.T) {
	x, o := newSharesForTest(), ownerOf(1)
	one, two := decision(1, 1, o), decision(2, 1, o)
	x.SetAll([]Decision{one, two}, func(HostRun) bool { return true }, sharesNow)
	x.take(o)
	x.Told(o)
	x.Drop(one.Share)
	x.Forget(func(HostRun) bool { return true })
	if x.WasTold(o) {
		t.Error("the run was told all lists, though one of them was forgotten before it confirmed it")
	}
}

// TestShares_LeaveTellsNobody: of a queue that another controller is responsible for nothing is named, sent or waited
// for, also in the middle of a move.
func TestShares_LeaveTellsNobody(t *testing.T) {
	x, a, b := newSharesForTest(), ownerOf(1), ownerOf(2)
	for n := range byte(4) {
		x.Set(decision(1, n, a))
		x.Set(decision(2, n, a))
	}
	x.take(a)
	moved := decision(1, 0, b)
	moved.Counter = 2
	x.SetAll([]Decision{moved}, func(HostRun) bool { return true }, sharesNow.Add(time.Minute))
	marked := x.Mark(queueID(1), []HostRun{a, b})
	x.Leave(queueID(1))
	for _, o := range []HostRun{a, b} {
		if due := x.due(o); len(due) != 0 {
			t.Errorf("lists of %v are due to %s", due, o.Host)
		}
		for _, v := range must(x.Versions(o, core.QueueID{}, 10)) {
			if v.Queue == queueID(1) {
				t.Errorf("the list of the queue is named to %s", o.Host)
			}
		}
	}
	if n := len(x.mu.moving) + len(x.mu.queues[queueID(1)]) + len(x.Unheard(marked)); n != 0 || x.Count() != 4 {
		t.Errorf("%d moves, lists and waits are left, and %d shares, want 0 and the 4 of the other queue", n, x.Count())
	}
	if d := x.Get(moved.Share); d.Counter != 0 {
		t.Errorf("a decision is left: %+v", d)
	}
}

func must(page []QueueVersion, _ bool) []QueueVersion { return page }

// TestShares_CounterThatAHostNames: a host may name the highest counter that there can be. The lists from then on have
// counters that hosts take, see convert.CheckCounter.
func TestShares_CounterThatAHostNames(t *testing.T) {
	high := core.ListVersion{Counter: math.MaxInt64, Controller: "another", Run: core.RunID{ID: core.ID{2}}}
	for name, say := range map[string]func(x *Shares, o HostRun){
		"it asks for a list of nothing": func(x *Shares, o HostRun) { x.List(o, queueID(2), high) },
		"it asks for its list":          func(x *Shares, o HostRun) { x.List(o, queueID(1), high) },
		"it answers":                    func(x *Shares, o HostRun) { x.Answered(o, queueID(1), core.ListVersion{}, high, true) },
		"it answers a minority":         func(x *Shares, o HostRun) { x.Heard(high.Counter) },
	} {
		x, o := newSharesForTest(), ownerOf(1)
		x.Set(decision(1, 1, o))
		for range 3 {
			say(x, o)
		}
		x.Set(decision(1, 2, o))
		if v := x.List(o, queueID(1), core.ListVersion{}).Version; v.Counter >= math.MaxInt64 {
			t.Errorf("%s: the next list has counter %d", name, v.Counter)
		}
	}
}
