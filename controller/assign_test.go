package controller

import (
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// owners are who was given each extent; more than one is an error.
func (r *harness) owners() map[core.ExtentID]core.HostID {
	r.t.Helper()
	out := make(map[core.ExtentID]core.HostID)
	for _, o := range r.outputs {
		for id := range o.shares() {
			if other := out[id]; other != "" {
				r.t.Errorf("%s and %s own %s", other, o.id, id)
			}
			out[id] = o.id
		}
	}
	return out
}

// extents makes so many of a queue with one group.
func (r *harness) extents(n int) (core.QueueID, core.GroupID, []core.Extent) {
	queue := r.queue(1, 1)
	group := r.group(queue, "g")
	var out []core.Extent
	for range n {
		e, err := r.ctl.createExtent(r.t.Context(), r.wish(queue))
		r.ok(err)
		out = append(out, e)
	}
	r.eventually("all have owners", 5*time.Second, func() bool { return len(r.owners()) >= n })
	return queue, group, out
}

func TestAssign_SharesOfADeadHostMoveAtOnce(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, outputs: 3}, func(r *harness) {
		r.extents(300)
		dead := r.outputs[1]
		if n := len(dead.shares()); n < 60 {
			t.Fatalf("it owns %d of 300", n)
		}
		r.kill(dead.id)
		dead.with(func() { dead.lists = nil })
		r.leave(dead.id)
		took := r.eventually("the others own all", 5*time.Second, func() bool { return len(r.owners()) == 300 })
		if took > 300*time.Millisecond {
			t.Errorf("it took %s", took)
		}
		r.sleep(time.Second)
		if n := r.assignments(); n != 300 {
			t.Errorf("%d rows of 300 shares: superseded ones stay", n)
		}
	})
}

func (o *fakeOutput) with(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f()
}

// assignments counts the rows of all groups.
func (r *harness) assignments() int {
	n := 0
	for _, q := range r.ctl.extents.Queues() {
		for g, err := range metadata.All[metadata.GroupRecord](r.t.Context(), r.meta, metadata.Groups, q.String(), metadata.One) {
			r.ok(err)
			n += rows(r, metadata.Assignments, g.Value.ID.String())
		}
	}
	return n
}

// TestAssign_HostThatAnswersKeepsItsShares: membership lost it for a while.
func TestAssign_HostThatAnswersKeepsItsShares(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, outputs: 2}, func(r *harness) {
		r.extents(50)
		before := r.owners()
		m, _ := membership.Find(r.members, "o1")
		for range 5 {
			r.leave("o1")
			r.sleep(3 * time.Second)
			r.join(m)
			r.sleep(time.Second)
		}
		r.leave("o1")
		r.sleep(time.Minute)
		for id, owner := range r.owners() {
			if owner != before[id] {
				t.Fatalf("a share moved from %s to %s", before[id], owner)
			}
		}
	})
}

func TestAssign_HungHostHoldsNoOtherUp(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, outputs: 2}, func(r *harness) {
		queue, group, _ := r.extents(10)
		release := make(chan struct{})
		defer close(release)
		r.outputs[0].with(func() { r.outputs[0].hung = release })
		for i := 0; i < 20; i++ {
			e, err := r.ctl.createExtent(r.t.Context(), r.wish(queue))
			r.ok(err)
			owner := r.ctl.shares
			r.eventually("it has an owner", time.Second, func() bool { return owner.Count() == 11+i })
			r.sleep(50 * time.Millisecond)
			if r.ownerOf(group, e.ID) == "o1" && r.outputs[1].shares()[e.ID] == nil {
				t.Fatal("the list of one host waits for another one")
			}
		}
	})
}

// ownerOf the only group's share.
func (r *harness) ownerOf(group core.GroupID, id core.ExtentID) core.HostID {
	return r.ctl.shares.Get(catalog.Share{Group: group, Extent: id}).Owner.Host
}

// TestAssign_RestartMovesNothing: the new controller hears of one host late.
func TestAssign_RestartMovesNothing(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, outputs: 2}, func(r *harness) {
		_, _, all := r.extents(50)
		before := r.owners()
		m, _ := membership.Find(r.members, "o1")
		r.ctl.end()
		r.leave("o1")
		r.leave("in")
		r.ctl = r.startController(nil)
		r.sleep(3 * time.Second)
		r.join(m, r.input)
		r.sleep(20 * time.Second)
		for id, owner := range r.owners() {
			if owner != before[id] {
				t.Fatalf("a share moved from %s to %s", before[id], owner)
			}
		}
		for _, e := range all {
			if row := r.row(e); row.State != "" {
				t.Fatalf("an extent whose writer lives was sealed: %+v", row)
			}
		}
		if len(r.owners()) != 50 {
			t.Errorf("%d of 50 shares have owners", len(r.owners()))
		}
	})
}

func TestAssign_NewHostGetsItsPart(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness) {
		r.extents(100)
		o := &fakeOutput{id: "o9", run: newRun()}
		r.outputs = append(r.outputs, o)
		r.upOutput(o)
		r.join(membership.Host{ID: o.id, Roles: []string{"outputhost"}, Address: "o9:1", Run: o.run})
		r.sleep(time.Second)
		if n := len(o.shares()); n < 30 || n > 70 {
			t.Errorf("it got %d of 100", n)
		}
		if n := len(r.owners()); n != 100 {
			t.Errorf("%d have owners", n)
		}
	})
}

func TestAssign_ConsumedSharesAreDropped(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness) {
		_, group, all := r.extents(3)
		for _, e := range all[:2] {
			r.stores[0].write(e, "a")
			_, err := r.seal(e, 1)
			r.ok(err)
			r.ok(metadata.Write(r.t.Context(), r.meta, metadata.Dones, metadata.DoneKey(group, e.ID, 0), metadata.DoneRecord{L: 1}, time.Now(), 0, metadata.One))
		}
		r.eventually("one share is left", 15*time.Second, func() bool { return len(r.owners()) == 1 })
		r.sleep(time.Second)
		if n := r.assignments(); n != 1 {
			t.Errorf("%d rows, want one", n)
		}
		r.ctl.end()
		r.ctl = r.startController(nil)
		r.sleep(time.Minute)
		if n := len(r.owners()); n != 1 {
			t.Errorf("%d shares after a restart, want one", n)
		}
	})
}

// TestAssign_ReadersLearnOfHolders: an extent is repaired onto a store that is none of its replicas.
func TestAssign_ReadersLearnOfHolders(t *testing.T) {
	bubble(t, harnessOptions{stores: 4, outputs: 1, edit: seldom}, func(r *harness) {
		queue := r.queue(3, 2)
		r.group(queue, "g")
		e := r.sealed(queue, 3)
		if got := r.outputs[0].shares()[e.ID]; got == nil || len(got.Holders) != 0 {
			t.Fatalf("share %v, want it read from its replicas", got)
		}
		r.kill(r.replicas(e)[0].id)
		r.sleep(6 * time.Minute)
		if got := r.outputs[0].shares()[e.ID].GetHolders(); len(got) != 4 {
			t.Errorf("holders %v, want the new one too", got)
		}
	})
}

// TestAssign_ListIsComplete: who asks gets all shares, of the versions that are named, and no older ones than were
// pushed.
func TestAssign_ListIsComplete(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness) {
		queue, _, _ := r.extents(7)
		o := r.outputs[0]
		named := r.named(o)
		if len(named) != 1 || core.ID(named[0].Queue) != queue.ID {
			t.Fatalf("the lists %v are named, want one of %s", named, queue)
		}
		lists := r.lists(o, &pb.QueueVersion{Queue: queue.ID[:]})
		if n := len(lists[0].Assignments); n != 7 {
			t.Errorf("%d shares", n)
		}
		if !proto.Equal(lists[0].Version, named[0].Version) {
			t.Errorf("version %v, named %v", lists[0].Version, named[0].Version)
		}
		if lists[0].Version.Counter < o.lists[queue].Version.Counter {
			t.Error("the list is older than the one it has")
		}
	})
}

// named are the versions of an output host's lists, all pages.
func (r *harness) named(o *fakeOutput) (out []*pb.QueueVersion) {
	r.t.Helper()
	for req := (&pb.ListAssignmentsRequest{Owner: string(o.id), Run: o.run.ID[:]}); ; req.After = out[len(out)-1].Queue {
		resp, err := (&service{r.ctl.Host}).ListAssignments(r.t.Context(), connect.NewRequest(req))
		r.ok(err)
		out = append(out, resp.Msg.Lists...)
		if !resp.Msg.More {
			return out
		}
	}
}

// lists are what an output host is answered that asks for them.
func (r *harness) lists(o *fakeOutput, known ...*pb.QueueVersion) []*pb.AssignmentList {
	r.t.Helper()
	resp, err := (&service{r.ctl.Host}).GetAssignments(r.t.Context(), connect.NewRequest(&pb.GetAssignmentsRequest{Owner: string(o.id), Run: o.run.ID[:], Known: known}))
	r.ok(err)
	if int(resp.Msg.Done) != len(resp.Msg.Lists) {
		r.t.Fatalf("%d lists for %d queues", len(resp.Msg.Lists), resp.Msg.Done)
	}
	return resp.Msg.Lists
}

func TestHosts_InputHostThatDies(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		e := r.extent(r.queue(3, 2), 4)
		r.leave("in")
		r.sleep(10 * time.Second)
		if row := r.row(e); row.State != "" {
			t.Fatalf("sealed although its writer answers: %+v", row)
		}
		r.kill("in")
		took := r.eventually("it is sealed", 5*time.Second, func() bool { return r.row(e).State == core.ExtentSealed })
		if took > 1500*time.Millisecond {
			t.Errorf("it took %s", took)
		}
		r.whole(e, 4, 3)
	})
}

func TestHosts_AnotherRunIsAnotherWriter(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		e := r.extent(r.queue(3, 2), 4)
		m := r.input
		m.Run = newRun()
		r.join(m)
		took := r.eventually("it is sealed", 5*time.Second, func() bool { return r.row(e).State == core.ExtentSealed })
		if took > 100*time.Millisecond {
			t.Errorf("it took %s", took)
		}
	})
}

// TestAnswers_OnlyTheRunCounts: who asks at an address is answered by whatever listens there now.
func TestAnswers_OnlyTheRunCounts(t *testing.T) {
	bubble(t, harnessOptions{}, func(r *harness) {
		client := &http.Client{Transport: &http.Transport{DialContext: r.dial, DisableKeepAlives: true}, Timeout: probeTimeout}
		if !answers(r.t.Context(), client, r.input) {
			t.Error("a host that answers 404 under its name is there")
		}
		restarted, other, nobody := r.input, r.input, r.input
		restarted.Run, other.ID, nobody.Address = newRun(), "other", "nobody:1"
		for name, m := range map[string]membership.Host{"another run": restarted, "another host": other, "an address that refuses": nobody} {
			if answers(r.t.Context(), client, m) {
				t.Errorf("%s counts as an answer", name)
			}
		}
	})
}

// TestHosts_AddressIsAnothers: an input host is killed, and a server that is no member gets its address. Its extents
// are sealed, and its queue in order goes on elsewhere.
func TestHosts_AddressIsAnothers(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		e := r.extent(r.queue(3, 2), 4)
		chained := r.chainedQueue()
		_, err := r.ctl.ensureExtent(r.t.Context(), r.wish(chained))
		r.ok(err)
		_, other := r.otherInput(chained)
		r.kill("in")
		r.serve("in:1", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { clear(w.Header()) }))
		r.leave("in")
		r.eventually("its extent is sealed", 5*time.Second, func() bool { return r.row(e).State == core.ExtentSealed })
		r.eventually("its queue in order goes on", 5*time.Second, func() bool {
			_, err := r.ctl.ensureExtent(r.t.Context(), other)
			return err == nil
		})
	})
}

// TestAssign_EpochOfQueueWithoutExtents is forgotten: its groups are read again when there is something of the queue.
func TestAssign_EpochOfQueueWithoutExtents(t *testing.T) {
	bubble(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness) {
		queue, group, all := r.extents(1)
		share := catalog.Share{Group: group, Extent: all[0].ID}
		r.eventually("the share has an owner", 5*time.Second, func() bool { return r.ctl.shares.Get(share).Counter > 0 })
		d := r.ctl.shares.Get(share)
		r.ctl.shares.SetEpoch(queue, group, 7)
		r.ctl.extents.Remove(all[0].ID)
		r.ctl.shares.touch(queue)
		r.eventually("the share is dropped", 5*time.Second, func() bool { return r.ctl.shares.Get(share).Counter == 0 })
		r.ctl.shares.Set(d)
		if l := r.ctl.shares.List(d.Owner, queue, core.ListVersion{}); len(l.Shares) != 1 || len(l.Epochs) != 0 {
			t.Errorf("epochs are kept: %v", l.Epochs)
		}
	})
}
