package controller

import (
	"context"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
)

// queues makes so many, each with a group and an extent, and waits until the only output host has all shares.
func (r *harness) queues(n int) (out []core.QueueID) {
	r.t.Helper()
	for range n {
		queue, _, _ := r.extents(1)
		out = append(out, queue)
	}
	r.eventually("all have owners", 5*time.Second, func() bool { return len(r.owners()) >= n })
	r.sleep(2 * maxPushPause)
	return out
}

// sent runs f, waits, and answers how many calls and lists the output host got.
func (o *fakeOutput) sent(r *harness, f func()) (calls, lists int) {
	var calls0, lists0 int
	o.with(func() { calls0, lists0 = o.calls, o.came })
	f()
	r.sleep(200 * time.Millisecond)
	o.with(func() { calls, lists = o.calls-calls0, o.came-lists0 })
	return calls, lists
}

// more makes another extent of a queue.
func (r *harness) more(queue core.QueueID) {
	_, err := r.ctl.createExtent(r.t.Context(), r.wish(queue))
	r.ok(err)
}

// TestPush_OnlyTheChangedListComes: the others are confirmed.
func TestPush_OnlyTheChangedListComes(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness) {
		all, o := r.queues(20), r.outputs[0]
		if calls, lists := o.sent(r, func() { r.more(all[3]) }); calls != 1 || lists != 1 {
			t.Errorf("%d calls with %d lists, want one list", calls, lists)
		}
		if n := len(o.shares()); n != 21 {
			t.Errorf("the host has %d shares, want 21", n)
		}
		if calls, _ := o.sent(r, func() { r.sleep(time.Minute) }); calls != 0 {
			t.Errorf("%d calls though all is confirmed", calls)
		}
		if o.complete != 1 {
			t.Errorf("it was told %d times that these are all lists, want once", o.complete)
		}
	})
}

// TestPush_PagesAtTheBound: all lists come, in calls at the bound, and a list that is longer by itself comes alone.
func TestPush_PagesAtTheBound(t *testing.T) {
	const many = 30
	for name, c := range map[string]struct{ lists, calls int }{"three lists": {3, many / 3}, "less than one list": {0, many}, "all": {many, 1}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness) {
				all, o := r.queues(many), r.outputs[0]
				size := proto.Size(r.lists(o, &pb.QueueVersion{Queue: all[0].ID[:]})[0])
				r.ctl.end()
				calls, lists := o.sent(r, func() { r.ctl = r.startController(func(cfg *Config) { cfg.PageBytes = max(c.lists*size, 1) }) })
				if calls != c.calls || lists != many {
					t.Errorf("%d calls with %d lists, want %d with %d", calls, lists, c.calls, many)
				}
				if named := r.named(o); len(named) != many {
					t.Errorf("%d lists are named, want %d", len(named), many)
				}
				var known []*pb.QueueVersion
				for _, queue := range all {
					known = append(known, &pb.QueueVersion{Queue: queue.ID[:]})
				}
				if n := len(r.lists(o, known...)); n != max(c.lists, 1) {
					t.Errorf("%d lists in an answer, want %d", n, max(c.lists, 1))
				}
			})
		})
	}
}

// TestPush_ClockBehind: the lists that the host has are of a controller whose clock was ahead of that of the next one.
func TestPush_ClockBehind(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness) {
		all, o := r.queues(5), r.outputs[0]
		ahead := core.ListVersion{Counter: uint64(time.Now().Add(time.Hour).UnixMicro()), Controller: r.self.ID, Run: newRun()}
		r.ctl.end()
		o.with(func() {
			for _, l := range o.lists {
				l.Version = convert.ListVersionToProto(ahead)
				l.Assignments = nil
			}
			o.floor = ahead
		})
		calls, lists := o.sent(r, func() { r.ctl = r.startController(nil) })
		if n := len(o.shares()); n != 5 || calls != 2 || lists != 10 {
			t.Errorf("the host has %d of 5 shares after %d calls with %d lists, want each list refused once", n, calls, lists)
		}
		if calls, lists := o.sent(r, func() { r.more(all[0]) }); calls != 1 || lists != 1 {
			t.Errorf("a change then takes %d calls with %d lists", calls, lists)
		}
		fresh := r.queue(1, 1)
		r.group(fresh, "g")
		if calls, lists := o.sent(r, func() { r.more(fresh) }); calls != 1 || lists != 1 || len(o.shares()) != 7 {
			t.Errorf("a new queue then takes %d calls with %d lists; %d shares", calls, lists, len(o.shares()))
		}
	})
}

// TestPush_AlwaysNewer: a host that names a newer list again and again is not sent one after another without an end.
func TestPush_AlwaysNewer(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness) {
		r.queues(1)
		o := r.outputs[0]
		o.with(func() { o.rival = true })
		calls, _ := o.sent(r, func() { r.more(r.ctl.extents.Queues()[0]) })
		if calls < 1 || calls > 2*mostRefusals {
			t.Errorf("%d calls", calls)
		}
		o.with(func() { o.rival = false })
		r.eventually("it has the list", 5*time.Second, func() bool { return len(o.shares()) == 2 })
	})
}

// TestPush_ListThatFailsHoldsUpNoOther: it comes again with the next rounds, also if what it lacks cannot be saved.
func TestPush_ListThatFailsHoldsUpNoOther(t *testing.T) {
	for what, unsaved := range map[string]bool{"resumed": false, "saved": true} {
		t.Run(what, func(t *testing.T) { pushFailing(t, unsaved) })
	}
}

func pushFailing(t *testing.T, unsaved bool) {
	bubble(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness) {
		all, o := r.queues(10), r.outputs[0]
		o.with(func() { o.failing, o.unsaved = map[core.QueueID]bool{all[0]: true}, unsaved })
		if calls, lists := o.sent(r, func() { r.more(all[0]) }); calls != 1 || lists != 1 {
			t.Errorf("%d calls with %d lists, want the one that fails", calls, lists)
		}
		heard := func() []core.HostID {
			ctx, cancel := context.WithTimeout(r.t.Context(), 100*time.Millisecond)
			defer cancel()
			unheard, err := r.ctl.heardHere(ctx, all[0], nil)
			r.ok(err)
			return unheard
		}
		if got := heard(); !slices.Equal(got, []core.HostID{o.id}) {
			t.Errorf("%v have not heard of the queue whose list fails", got)
		}
		for _, queue := range all[1:] {
			r.more(queue)
		}
		r.eventually("the others come", time.Second, func() bool { return len(o.shares()) == 20 })
		calls, lists := o.sent(r, func() { r.sleep(10 * time.Second) })
		if calls < 4 || calls > 7 || lists != calls {
			t.Errorf("in 10 s %d calls with %d lists, want the one that fails with each round", calls, lists)
		}
		o.with(func() { o.failing = nil })
		r.sleep(3 * time.Second)
		if got := heard(); len(got) > 0 {
			t.Errorf("%v have not heard", got)
		}
		if calls, _ := o.sent(r, func() { r.sleep(10 * time.Second) }); calls != 0 {
			t.Errorf("%d calls after it is confirmed", calls)
		}
	})
}

// TestPush_HostThatMissedPushes: it hung while one queue changed, and one came to its end. It gets these two lists.
func TestPush_HostThatMissedPushes(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness) {
		_, group, consumed := r.extents(1)
		all, o := r.queues(9), r.outputs[0]
		hung := make(chan struct{})
		o.with(func() { o.hung = hung })
		r.more(all[0])
		_, err := r.seal(consumed[0], 0)
		r.ok(err)
		r.done(group, consumed[0])
		r.sleep(15 * time.Second) // until it is seen that the queue is consumed
		calls, lists := o.sent(r, func() { r.sleep(time.Minute) })
		o.with(func() { o.hung = nil })
		close(hung)
		r.sleep(5 * time.Second)
		if n := len(o.shares()); n != 10 || calls == 0 || lists != 2*calls {
			t.Errorf("%d lists came with %d calls, and the host has %d shares; want 2 with each, and 10", lists, calls, n)
		}
		if named := r.named(o); len(named) != 9 {
			t.Errorf("%d lists are kept, want none of the queue that is consumed", len(named))
		}
	})
}

// TestPull_NewerThanWhatTheHostHas: a list is answered above the version that the host names; also of a queue of which
// it owns nothing.
func TestPull_NewerThanWhatTheHostHas(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness) {
		all, o := r.queues(2), r.outputs[0]
		nobodys := core.NewID(time.Now())
		have := core.ListVersion{Counter: 1 << 60, Controller: "another", Run: newRun()}
		known := []*pb.QueueVersion{
			{Queue: all[0].ID[:], Version: convert.ListVersionToProto(have)}, {Queue: all[1].ID[:]}, {Queue: nobodys[:], Version: convert.ListVersionToProto(have)},
		}
		got := r.lists(o, known...)
		if len(got) != 3 || len(got[0].Assignments) != 1 || len(got[1].Assignments) != 1 || len(got[2].Assignments) != 0 {
			t.Fatalf("lists %v", got)
		}
		for i, above := range []bool{true, false, true} {
			v, err := convert.ListVersion(got[i].Version)
			r.ok(err)
			if (v.Compare(have) > 0) != above {
				t.Errorf("list %d has version %+v", i, v)
			}
		}
	})
}

// TestHeard_HostThatWasNotToldYet: a controller has begun, and does not know what the one before it gave the host.
func TestHeard_HostThatWasNotToldYet(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, outputs: 2}, func(r *harness) {
		queue, _, _ := r.extents(1)
		r.eventually("the share has an owner", 5*time.Second, func() bool { return len(r.outputs[0].shares())+len(r.outputs[1].shares()) == 1 })
		other := r.outputs[0]
		if len(other.shares()) > 0 {
			other = r.outputs[1]
		}
		r.ctl.end()
		hung := make(chan struct{})
		other.with(func() { other.hung = hung })
		r.ctl = r.startController(nil)
		r.sleep(5 * time.Second)
		heard := func() []core.HostID {
			ctx, cancel := context.WithTimeout(r.t.Context(), 100*time.Millisecond)
			defer cancel()
			unheard, err := r.ctl.heardHere(ctx, queue, nil)
			r.ok(err)
			return unheard
		}
		if got := heard(); !slices.Equal(got, []core.HostID{other.id}) {
			t.Errorf("%v have not heard, want the host that may have shares of the controller of before", got)
		}
		other.with(func() { other.hung = nil })
		close(hung)
		r.sleep(5 * time.Second)
		if got := heard(); len(got) > 0 {
			t.Errorf("%v have not heard", got)
		}
	})
}

// TestPull_ManyQueues: an answer settles the first of them; who asks goes on with the others.
func TestPull_ManyQueues(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness) {
		known := make([]*pb.QueueVersion, queuesPerAnswer+1)
		for i := range known {
			id := core.NewID(time.Now())
			known[i] = &pb.QueueVersion{Queue: id[:]}
		}
		known[queuesPerAnswer].Queue = nil // not read
		if n := len(r.lists(r.outputs[0], known...)); n != queuesPerAnswer {
			t.Errorf("%d lists", n)
		}
	})
}
