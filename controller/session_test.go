package controller

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/membership/static"
	"github.com/columbamq/columba/metadata"
)

// two has a second controller, and both act for a part of the queues each.
func two(t *testing.T, o harnessOptions, f func(r *harness, both [2]*running)) {
	t.Helper()
	edit := o.edit
	o.edit = func(cfg *Config) {
		if beside(cfg); edit != nil {
			edit(cfg)
		}
	}
	bubble(t, o, func(r *harness) {
		r.config = o.edit
		all := r.meta
		r.cut = &refusing{Store: all}
		r.use(r.cut)
		second := r.beside("ctl2")
		r.use(all)
		defer func() {
			if r.ctl != second {
				second.end()
			}
		}()
		r.answer(r.ctl)
		r.eventually("each controller is responsible for something", 5*time.Second, func() bool {
			n := [2]int{}
			for i := range byte(32) {
				for c, x := range []*running{r.ctl, second} {
					if x.duties.Responsible(core.ID{i}) {
						n[c]++
					}
				}
			}
			return n[0] > 0 && n[1] > 0 && n[0]+n[1] == 32
		})
		f(r, [2]*running{r.ctl, second})
	})
}

// beside has a controller act beside others.
func beside(cfg *Config) { cfg.Alone = false }

// beside starts one more controller.
func (r *harness) beside(id core.HostID) *running {
	r.t.Helper()
	self := membership.Host{ID: id, Roles: []string{"controller"}, Address: string(id) + ":1", Run: newRun()}
	members, err := static.New(self, r.members.Hosts("")...)
	r.ok(err)
	r.join(self)
	r.further = append(r.further, members)
	c := r.startAs(members, r.config)
	r.answer(c)
	return c
}

// answer has a controller answer calls.
func (r *harness) answer(c *running) {
	mux := http.NewServeMux()
	mux.Handle(columbav1connect.NewControllerServiceHandler(&service{c.Host}))
	r.serve(c.deps.Members.Self().Address, mux)
}

// of is the index of the controller that is responsible for a queue; -1: none is.
func of(both [2]*running, queue core.QueueID) int {
	for i, c := range both {
		if c.duties.Responsible(queue.ID) {
			return i
		}
	}
	return -1
}

// TestSession_EachQueueHasOneController: nothing fails; each share has one decision, by the controller of its queue,
// and each list comes once.
func TestSession_EachQueueHasOneController(t *testing.T) {
	two(t, harnessOptions{stores: 1, outputs: 2}, func(r *harness, both [2]*running) {
		var all []core.QueueID
		for range 12 {
			q := r.queue(1, 1)
			r.group(q, "g")
			i := of(both, q)
			for range 3 {
				_, err := both[1-i].createExtent(r.t.Context(), r.wish(q)) // the other one was asked for the extents
				r.ok(err)
			}
			all = append(all, q)
		}
		r.eventually("all have owners", 2*time.Minute, func() bool { return len(r.owners()) == 36 })
		r.eventually("all owners are told", 2*time.Minute, func() bool { return len(r.outputs[0].shares())+len(r.outputs[1].shares()) == 36 })
		r.sleep(5 * time.Second)
		var came [2]int
		for i, o := range r.outputs {
			o.with(func() { came[i] = o.came })
		}
		before := r.assignments()
		r.sleep(time.Minute) // nobody opens the extents, so they are sealed in two
		for i, o := range r.outputs {
			if o.with(func() { came[i] = o.came - came[i] }); came[i] > 0 {
				t.Errorf("%d lists came to a host though nothing changed", came[i])
			}
		}
		if n := r.assignments(); n != before || n != 36 {
			t.Errorf("%d rows of assignments, then %d, want 36", before, n)
		}
		for _, q := range all {
			if i := of(both, q); both[i].shares.looked(q) == both[1-i].shares.looked(q) {
				t.Errorf("queue %s is looked at by %d", q, i)
			}
		}
	})
}

// TestSession_ExtentOfAnotherController: a controller makes an extent that another one's queue reads, as of a retry
// queue. Its shares have owners at once.
func TestSession_ExtentOfAnotherController(t *testing.T) {
	two(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness, both [2]*running) {
		q := r.queue(1, 1)
		r.group(q, "g")
		r.sleep(time.Minute)
		_, err := both[1-of(both, q)].createExtent(r.t.Context(), r.wish(q))
		r.ok(err)
		r.eventually("the owner is told", 2*time.Second, func() bool { return len(r.outputs[0].shares()) == 1 })
	})
}

// TestSession_TakeOver: the controller of a queue ends, in an orderly way or not. The other one goes on with its shares
// where they are, and moves nothing.
func TestSession_TakeOver(t *testing.T) {
	two(t, harnessOptions{stores: 1, outputs: 2}, func(r *harness, both [2]*running) {
		for range 8 {
			q := r.queue(1, 1)
			r.group(q, "g")
			for range 2 {
				_, err := both[of(both, q)].createExtent(r.t.Context(), r.wish(q))
				r.ok(err)
			}
		}
		r.eventually("all owners are told", time.Minute, func() bool { return len(r.outputs[0].shares())+len(r.outputs[1].shares()) == 16 })
		owners := r.owners()
		both[0].end()
		r.ctl = both[1]
		r.eventually("the other one has all", 3*time.Second, func() bool {
			n := 0
			for i := range byte(32) {
				if both[1].duties.Responsible(core.ID{i}) {
					n++
				}
			}
			return n == 32 && both[1].shares.Count() == 16
		})
		r.sleep(time.Minute)
		if now := r.owners(); len(now) != 16 || r.assignments() != 16 {
			t.Errorf("%d owners and %d rows, want 16", len(now), r.assignments())
		}
		for id, owner := range r.owners() {
			if owners[id] != owner {
				t.Errorf("extent %s moved", id)
			}
		}
		if n := len(r.outputs[0].shares()) + len(r.outputs[1].shares()); n != 16 {
			t.Errorf("the hosts have %d shares, want 16", n)
		}
	})
}

// TestSession_AnswersForItsQueuesOnly: a host that asks the other controller keeps what it has.
func TestSession_AnswersForItsQueuesOnly(t *testing.T) {
	two(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness, both [2]*running) {
		q := r.queue(1, 1)
		r.group(q, "g")
		i := of(both, q)
		_, err := both[i].createExtent(r.t.Context(), r.wish(q))
		r.ok(err)
		o := r.outputs[0]
		r.eventually("the owner is told", time.Minute, func() bool { return len(o.shares()) == 1 })
		r.sleep(time.Minute) // the other one knows the extent, too
		ask := func(c *running) *pb.GetAssignmentsResponse {
			resp, err := (&service{c.Host}).GetAssignments(r.t.Context(), connect.NewRequest(&pb.GetAssignmentsRequest{
				Owner: string(o.id), Run: o.run.ID[:], Known: []*pb.QueueVersion{{Queue: q.ID[:]}},
			}))
			r.ok(err)
			return resp.Msg
		}
		if mine := ask(both[i]); mine.Done != 1 || len(mine.Lists) != 1 || len(mine.Lists[0].Assignments) != 1 {
			t.Errorf("its controller answers %v", mine)
		}
		if others := ask(both[1-i]); others.Done != 1 || len(others.Lists) != 0 {
			t.Errorf("another controller answers %v", others)
		}
		for c, x := range both {
			resp, err := (&service{x.Host}).RenewShares(r.t.Context(), connect.NewRequest(&pb.RenewSharesRequest{Owner: string(o.id), Run: o.run.ID[:]}))
			r.ok(err)
			if !resp.Msg.Held {
				t.Errorf("controller %d does not hold its session lease", c)
			}
		}
	})
}

// TestSession_NamesItsListsOnly: from when its session lapses a controller names no list to a host that asks, also
// before a round has forgotten the lists: the host would deliver from them, while another controller gives the shares
// away.
func TestSession_NamesItsListsOnly(t *testing.T) {
	two(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness, both [2]*running) {
		second := both[1]
		var q core.QueueID
		for q = r.queue(1, 1); of(both, q) != 1; q = r.queue(1, 1) {
		}
		r.group(q, "g")
		_, err := second.createExtent(r.t.Context(), r.wish(q))
		r.ok(err)
		o := r.outputs[0]
		r.eventually("the owner is told", time.Minute, func() bool { return len(o.shares()) == 1 })
		r.ctl = second
		defer func() { r.ctl = both[0] }()
		if n := len(r.named(o)); n != 1 {
			t.Fatalf("it names %d lists", n)
		}
		r.cut.on.Store(true)
		r.eventually("its session lapses", time.Minute, func() bool {
			n := len(r.named(o))
			lapsed := !second.duties.Responsible(q.ID)
			if lapsed && n > 0 {
				t.Error("it names a list of a queue that it is not responsible for")
			}
			return lapsed
		})
		for range 300 {
			if len(r.named(o)) > 0 && !second.duties.Responsible(q.ID) {
				t.Error("it names a list of a queue that it is not responsible for")
				break
			}
			r.sleep(10 * time.Millisecond)
		}
		r.cut.on.Store(false)
	})
}

// TestSession_TakeOverWaitsForUnheardOwners: an output host is cut off from the controller that takes over. Its shares
// stay its own until it cannot be handing out any more.
func TestSession_TakeOverWaitsForUnheardOwners(t *testing.T) {
	two(t, harnessOptions{stores: 1, outputs: 2}, func(r *harness, both [2]*running) {
		for range 8 {
			q := r.queue(1, 1)
			r.group(q, "g")
			_, err := both[of(both, q)].createExtent(r.t.Context(), r.wish(q))
			r.ok(err)
		}
		r.eventually("all owners are told", time.Minute, func() bool { return len(r.outputs[0].shares())+len(r.outputs[1].shares()) == 8 })
		cut := r.outputs[1]
		had := len(cut.shares())
		r.kill(cut.id)
		r.leave(cut.id)
		taken := time.Now()
		both[0].end()
		r.ctl = both[1]
		others := func() int { return len(r.outputs[0].shares()) }
		r.eventually("the other one is responsible", 3*time.Second, func() bool { return both[1].duties.Responsible(core.ID{1}) && both[1].shares.Count() == 8 })
		if n := others(); time.Since(taken) < dispatch.OwnerLease && n == 8 && had > 0 {
			t.Errorf("the shares moved %s after the take-over", time.Since(taken))
		}
		r.eventually("the shares moved", 20*time.Second, func() bool { return others() == 8 })
	})
}

// TestSession_TakeOverDuringAMove: a controller ends while shares move away from a host that has not confirmed that
// yet. The next controller tells nobody of them before that host has given them away.
func TestSession_TakeOverDuringAMove(t *testing.T) {
	const many = 32
	two(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness, both [2]*running) {
		var all []catalog.Share
		for range many {
			q := r.queue(1, 1)
			g := r.group(q, "g")
			e, err := both[of(both, q)].createExtent(r.t.Context(), r.wish(q))
			r.ok(err)
			all = append(all, catalog.Share{Group: g, Extent: e.ID})
		}
		before := r.outputs[0]
		r.eventually("the first host has all shares", time.Minute, func() bool { return len(before.shares()) == many })
		r.sleep(time.Minute)
		hung := make(chan struct{})
		before.with(func() { before.hung = hung })
		after := &fakeOutput{id: "o1", run: newRun()}
		r.upOutput(after)
		r.join(membership.Host{ID: after.id, Roles: []string{"outputhost"}, Address: "o1:1", Run: after.run})
		r.eventually("shares are to move", time.Second, func() bool {
			return slices.ContainsFunc(all, func(s catalog.Share) bool { return both[0].shares.Get(s).Owner.Host == after.id })
		})
		both[0].end()
		r.ctl = both[1]
		r.eventually("the other one has all", 3*time.Second, func() bool { return both[1].shares.Count() == many })
		r.sleep(time.Second)
		if n := len(after.shares()); n > 0 {
			t.Errorf("the second host was told of %d shares that the first one has", n)
		}
		close(hung)
		took := r.eventually("the second host has a part", 20*time.Second, func() bool { return len(after.shares()) > 0 })
		if took > time.Second {
			t.Errorf("it was told %s after the first one gave them away", took)
		}
		r.sleep(moveWithin)
		if n := len(before.shares()) + len(after.shares()); n != many {
			t.Errorf("the hosts have %d shares, want %d", n, many)
		}
	})
}

// TestSession_HandOverWaitsForNoPush: a push looks for lists that are due while another controller is acknowledged.
// Each would wait for the other.
func TestSession_HandOverWaitsForNoPush(t *testing.T) {
	queue := core.QueueID{ID: core.ID{1}}
	h := &Host{duties: alone{}, actions: newActions(), extents: catalog.NewExtents(), shares: newShares(catalog.HostRun{Host: "ctl"}, time.Now())}
	defer h.actions.stop()()
	asked := make(chan bool)
	go func() { asked <- (&pushing{h: h}).rests(queue, time.Now()) }()
	select {
	case rests := <-asked:
		if rests {
			t.Error("the list stays for later")
		}
	case <-time.After(10 * time.Second):
		t.Error("the push waits for the hand-over, which waits for the shares")
	}
}

// TestSession_StraySealsNothing: a process that belongs to no cluster uses the metadata of this one. All writers are
// gone to it. It seals none of their extents, but for a caller who asks for that.
func TestSession_StraySealsNothing(t *testing.T) {
	bubble(t, harnessOptions{stores: 3, edit: beside}, func(r *harness) {
		r.config = beside
		q := r.queue(3, 1)
		e := r.extent(q, 10)
		r.sleep(time.Minute)
		self := membership.Host{ID: "stray", Roles: []string{"controller"}, Address: "stray:1", Run: newRun()}
		members, err := static.New(self)
		r.ok(err)
		stray := r.startAs(members, r.config)
		defer stray.end()
		r.eventually("it knows the extent", time.Minute, func() bool { _, known := stray.extents.Get(e.ID); return known })
		for range 300 {
			r.sleep(time.Second)
			if x, _ := r.ctl.extents.Get(e.ID); x.State != core.ExtentOpen {
				r.t.Fatalf("the extent is %s", x.State)
			}
			if _, err := r.meta.Get(r.t.Context(), metadata.Seals, metadata.SealKey(e.ID), metadata.Serial); core.CodeOf(err) != core.CodeNotFound {
				r.t.Fatalf("a seal was begun: %v", err)
			}
		}
		_, err = r.seal(e, 0)
		r.ok(err)
	})
}
