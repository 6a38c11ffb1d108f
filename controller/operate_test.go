package controller

import (
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// lettered is a queue whose group has dead letters: controllers are responsible for the two queues.
type lettered struct {
	path           string
	queue, letters core.QueueID
	group, sift    core.GroupID // of the queue, and of its dead letters
}

// lettered makes one: the first controller is responsible for the queue, the second for the dead letters, by their
// numbers.
func (r *harness) lettered(both [2]*running, queueBy, lettersBy int) (x lettered) {
	r.t.Helper()
	by := func(want int) core.QueueID {
		for range 1000 {
			id := core.QueueID{ID: core.NewID(time.Now())}
			if of(both, id) == want {
				spec := core.QueueSpec{Path: "/t/" + id.String(), Replicas: 1, MinReplicas: 1, Status: core.StatusEnabled}.WithDefaults(1, 1)
				r.ok(metadata.Create(r.t.Context(), r.meta, metadata.Queues, metadata.QueueKey(id), metadata.QueueRecord{ID: id, Spec: spec}))
				r.ok(metadata.Create(r.t.Context(), r.meta, metadata.Names, metadata.NameKey(spec.Path), metadata.NameRecord{Queue: id}))
				return id
			}
		}
		r.t.Fatalf("controller %d is responsible for nothing", want)
		return core.QueueID{}
	}
	x.queue, x.letters = by(queueBy), by(lettersBy)
	x.path = "/t/" + x.queue.String()
	x.group, x.sift = r.group(x.queue, "g"), r.group(x.letters, "sift")
	r.edit(x.queue, "g", func(g *metadata.GroupRecord) { g.DLQ, g.Spec.Queue = x.letters, x.path })
	for _, c := range both {
		c.shares.touch(x.queue)
		c.shares.touch(x.letters)
	}
	return x
}

// letter makes an extent of dead letters with an end, which the group of the dead letters is given.
func (r *harness) letter(x lettered) core.Extent {
	r.t.Helper()
	e := r.sealed(x.letters, 5)
	r.eventually("it is given to the group of the dead letters", time.Minute, func() bool { return slices.Equal(r.shared(e), []core.GroupID{x.sift}) })
	return e
}

// begin an operation at a controller.
func (r *harness) begin(c *running, kind metadata.OperationKind, x lettered, rate int) core.ID {
	r.t.Helper()
	id := core.NewID(time.Now())
	_, err := (&service{c.Host}).BeginOperation(r.t.Context(), connect.NewRequest(&pb.BeginOperationRequest{
		Operation: &pb.StartOperationRequest{Id: id.String(), Kind: string(kind), Queue: x.path, Group: "g", Rate: uint32(rate)}, Object: x.letters.ID[:], Who: "me",
	}))
	r.ok(err)
	return id
}

func (r *harness) operation(id core.ID) metadata.OperationRecord {
	r.t.Helper()
	o, err := metadata.FindOperation(r.t.Context(), r.meta, id)
	r.ok(err)
	return o
}

// ends waits until an operation is done, and answers it at that very moment.
func (r *harness) ends(id core.ID, most time.Duration) metadata.OperationRecord {
	r.t.Helper()
	for end := time.Now().Add(most); ; r.sleep(5 * time.Millisecond) {
		o := r.operation(id)
		switch {
		case o.Ended():
			if o.State != metadata.OperationDone || o.Error != "" {
				r.t.Errorf("it ended as %+v", o)
			}
			return o
		case time.Now().After(end):
			r.t.Fatalf("not done after %s: %+v", most, o)
		}
	}
}

// TestOperation_RunsWhereItsObjectIs: whichever controller is asked, the one that is responsible for the dead letters
// runs the operation.
func TestOperation_RunsWhereItsObjectIs(t *testing.T) {
	two(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness, both [2]*running) {
		for i := range 8 {
			asked, letters := both[i%2], i/2%2
			x := r.lettered(both, 0, letters)
			r.letter(x)
			o := r.ends(r.begin(asked, metadata.OperationMerge, x, 0), 10*time.Second)
			if o.By != both[letters].deps.Members.Self().ID {
				t.Errorf("operation %d was run by %s, which is not responsible for its dead letters", i, o.By)
			}
		}
	})
}

// TestOperation_DoneWhenOutputHostsHaveHeard: the controllers of the two queues are two. When the operation is done,
// the output hosts have the shares that follow from it.
func TestOperation_DoneWhenOutputHostsHaveHeard(t *testing.T) {
	for _, kind := range []metadata.OperationKind{metadata.OperationMerge, metadata.OperationPurge} {
		two(t, harnessOptions{stores: 1, outputs: 2}, func(r *harness, both [2]*running) {
			for i := range 8 {
				x := r.lettered(both, i%2, i/2%2)
				e := r.letter(x)
				o := r.ends(r.begin(both[i/4], kind, x, 0), 10*time.Second)
				want := []core.GroupID{x.group}
				if kind == metadata.OperationPurge {
					want = nil
				}
				if got := r.shared(e); !slices.Equal(got, want) || o.Done != 5 {
					t.Errorf("%s %d is done with %d messages, and %v have shares of it, want %v", kind, i, o.Done, got, want)
				}
			}
		})
	}
}

// crash ends the second controller without a word: its session lease goes on.
func (r *harness) crash(c *running) {
	r.cut.on.Store(true)
	r.kill("ctl2")
	c.end()
	r.further = nil
	r.leave("ctl2")
}

// TestOperation_GoesOnAfterACrash: the controller that runs an operation dies; the other one goes on within ten
// seconds.
func TestOperation_GoesOnAfterACrash(t *testing.T) {
	two(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness, both [2]*running) {
		x := r.lettered(both, 0, 1)
		for range 8 {
			r.letter(x)
		}
		id := r.begin(both[0], metadata.OperationMerge, x, 5) // an extent each second
		r.eventually("it runs at the second", 5*time.Second, func() bool { o := r.operation(id); return o.Moved == 2 && o.By == "ctl2" })
		r.crash(both[1])
		took := r.eventually("the first goes on", 10*time.Second+500*time.Millisecond, func() bool { o := r.operation(id); return o.Moved > 3 && o.By == "ctl" })
		t.Logf("it went on after %s", took)
		if o := r.ends(id, 20*time.Second); o.Done != 40 {
			t.Errorf("%d messages were merged, want 40", o.Done)
		}
	})
}

// TestOperation_OutlivesTheControllerOfItsLists: the controller whose lists an operation changes dies, or hangs, before
// output hosts hear of it. The operation is done when they have heard of it from the one that is responsible next.
func TestOperation_OutlivesTheControllerOfItsLists(t *testing.T) {
	two(t, harnessOptions{stores: 1, outputs: 2}, func(r *harness, both [2]*running) {
		x := r.lettered(both, 1, 0)
		e := r.letter(x)
		r.kill("ctl2") // its calls of others go on
		id := r.begin(both[0], metadata.OperationMerge, x, 0)
		r.eventually("all is moved", 5*time.Second, func() bool { return r.operation(id).Moved == 1 })
		r.sleep(15 * time.Second)
		if o := r.operation(id); o.Ended() {
			t.Errorf("it is done though the controller of the queue cannot be asked: %+v", o)
		}
		r.eventually("it says what it waits for", time.Minute, func() bool { return r.operation(id).Error != "" })
		r.cut.on.Store(true)
		both[1].end()
		r.further = nil
		r.leave("ctl2")
		if r.ends(id, time.Minute); !slices.Equal(r.shared(e), []core.GroupID{x.group}) {
			t.Errorf("it is done, and %v have shares of it", r.shared(e))
		}
	})
}

// TestHeard_ListOfTheControllerBefore: an output host has a list of a controller that is gone, and the one that is
// responsible knows nothing of its shares.
func TestHeard_ListOfTheControllerBefore(t *testing.T) {
	two(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness, both [2]*running) {
		x, o := r.lettered(both, 1, 0), r.outputs[0]
		r.eventually("it is sent all", 5*time.Second, func() bool { return both[1].shares.WasTold(both[1].outputRuns()[0]) })
		var had core.ListVersion
		o.with(func() {
			had.Counter = 1
			o.lists = map[core.QueueID]*pb.AssignmentList{x.queue: {Queue: x.queue.ID[:], Version: convert.ListVersionToProto(had), Assignments: []*pb.Assignment{{Extent: &pb.Extent{Id: x.group.ID[:]}}}}}
		})
		unheard, err := deadLetters{both[0].Host}.Heard(r.t.Context(), nil, x.queue)
		r.ok(err)
		if n := len(o.shares()); n > 0 || len(unheard) > 0 {
			t.Errorf("the host keeps %d shares, and %v have not heard", n, unheard)
		}
	})
}

// TestHeard_OfAnotherController: a controller answers for queues that it is responsible for alone.
func TestHeard_OfAnotherController(t *testing.T) {
	two(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness, both [2]*running) {
		x := r.lettered(both, 1, 0)
		e := r.letter(x)
		ask := func(c *running, queue core.QueueID) (*connect.Response[pb.HearSharesResponse], error) {
			return (&service{c.Host}).HearShares(r.t.Context(), connect.NewRequest(&pb.HearSharesRequest{Queue: queue.ID[:], Extents: [][]byte{e.ID.ID[:]}, WaitMs: 1000}))
		}
		if _, err := ask(both[0], x.queue); core.CodeOf(convert.FromRPC(err)) != core.CodeMoved {
			t.Errorf("another controller answers %v", err)
		}
		_, err := ask(both[1], x.queue)
		r.ok(err)
		hung := make(chan struct{})
		r.outputs[0].with(func() { r.outputs[0].hung = hung })
		r.change(e, func(row *metadata.SealRecord) { row.RemovedCount = 2 })
		resp, err := ask(both[0], x.letters)
		if r.ok(err); !slices.Equal(resp.Msg.Unheard, []string{"o0"}) {
			t.Errorf("%v have not heard, want the host that hangs", resp.Msg.Unheard)
		}
		r.outputs[0].with(func() { r.outputs[0].hung = nil })
		close(hung)
		r.sleep(3 * time.Second)
		if resp, err = ask(both[0], x.letters); err != nil || len(resp.Msg.Unheard) > 0 || r.outputs[0].shares()[e.ID].GetRemoved() != 2 {
			t.Errorf("%v, %v, and the host has %v", resp, err, r.outputs[0].shares()[e.ID])
		}
	})
}

// TestHeard_UnknownExtent: an operation gives a group messages that it copied into an extent of its own, which the
// controller of the group's queue has not heard of.
func TestHeard_UnknownExtent(t *testing.T) {
	two(t, harnessOptions{stores: 1, outputs: 1}, func(r *harness, both [2]*running) {
		x := r.lettered(both, 1, 0)
		d, id := deadLetters{both[0].Host}, core.NewID(time.Now())
		e, err := d.Stage(r.t.Context(), x.letters, id)
		r.ok(err)
		r.ok(d.Register(r.t.Context(), e, id))
		r.stores[0].write(e, numbers(1, 3)...)
		_, err = d.SealStage(r.t.Context(), e, 3)
		r.ok(err)
		r.change(e, func(row *metadata.SealRecord) { row.Home = core.MergedInto(x.queue, x.group) })
		d.Rehomed(r.row(e))
		unheard, err := d.Heard(r.t.Context(), []core.ExtentID{e.ID}, x.letters, x.queue)
		r.ok(err)
		if got := r.shared(e); len(unheard) > 0 || !slices.Equal(got, []core.GroupID{x.group}) {
			t.Errorf("%v have not heard, and %v have shares of it, want %s", unheard, got, x.group)
		}
	})
}
