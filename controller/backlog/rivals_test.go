package backlog

import (
	"slices"
	"testing"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/backlog"
	"github.com/columbamq/columba/core/dispatch"
)

// part is what the collector says as one of several.
func (r *harness) part(ids ...core.QueueID) *pb.ListDepthsResponse {
	r.t.Helper()
	req := &pb.ListDepthsRequest{Part: true}
	for _, id := range ids {
		req.Ids = append(req.Ids, id.ID[:])
	}
	out, err := r.List(req)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// TestList_Part: a controller tells of the queues that it is responsible for and has counted, and says which these are.
func TestList_Part(t *testing.T) {
	r := newHarness(t, 10)
	mine, other, idle := r.queue("/t/mine"), r.queue("/t/other"), r.queue("/t/idle")
	e, x := r.extent(mine), r.extent(other)
	g, h := r.group(mine, "/t/mine", "g"), r.group(other, "/t/other", "g")
	r.others[other] = true
	r.store(e, 7, 70)
	r.store(x, 9, 90)
	r.SetGroups(mine, []Group{pending(g, e)})
	r.round()
	out := r.part(mine, other, idle)
	if len(out.Depths) != 1 || out.Depths[0].Ready != 7 || out.Known != 2 || out.Counted != 1 || !slices.EqualFunc(out.Others, []core.QueueID{other}, func(b []byte, id core.QueueID) bool { return slices.Equal(b, id.ID[:]) }) {
		t.Errorf("the answer is %v", out)
	}
	if p, err := backlog.ParsePlace(out.Places[0]); err != nil || p != (backlog.Place{Value: 7, Path: "/t/mine", Group: "g"}) {
		t.Errorf("the row is at %v: %v", p, err)
	}
	if out, err := r.List(&pb.ListDepthsRequest{}); err != nil || len(out.Places) > 0 || out.Known > 0 {
		t.Errorf("the only controller answers %v: %v", out, err)
	}
	// It takes the queue over: until a round has counted it, its depth is not known.
	r.others[other] = false
	r.TookOver()
	r.SetGroups(other, []Group{pending(h, x)})
	if out := r.part(other); len(out.Depths) != 1 || out.Counted != 1 || len(out.Others) != 1 {
		t.Errorf("before it has counted it answers %v", out)
	}
	r.round()
	if out := r.part(other); len(out.Depths) != 2 || out.Depths[0].Ready != 9 || out.Counted != 2 || len(out.Others) != 0 {
		t.Errorf("once it has counted it answers %v", out)
	}
	if got := r.depth("/t/other", "g").PublishRate; got != 0 {
		t.Errorf("published at %g/s, want nothing: all of it was stored before", got)
	}
	r.others[other] = true // and no round of the controller has seen it yet
	r.round()
	if out := r.part(other); len(out.Depths) != 1 || out.Counted != 1 || len(out.Others) != 1 {
		t.Errorf("of a queue that it has lost it answers %v", out)
	}
}

// TestRound_QueueThatComesBack: a queue is another controller's for a while. Its owners tell nothing again that has not
// changed, so what they said before counts.
func TestRound_QueueThatComesBack(t *testing.T) {
	r := newHarness(t, 10)
	q := r.queue("/t/a")
	e := r.extent(q)
	g := r.group(q, "/t/a", "g")
	r.SetGroups(q, []Group{pending(g, e)})
	r.store(e, 100, 1000)
	r.owner("a").says(g, e, &pb.ShareCounts{Settled: 40, InFlight: 7})
	r.saved[share{g.ID, e.ID}] = backlog.Progress{Settled: 10}
	r.round()
	r.others[q] = true
	r.LeaveQueue(q)
	r.owner("b").down = true // another host goes meanwhile
	r.round()
	delete(r.owners, "b")
	r.round()
	r.others[q] = false
	r.SetGroups(q, []Group{pending(g, e)})
	r.round()
	r.counts("/t/a", "g", &pb.Depth{Ready: 53, InFlight: 7, Bytes: 600})
}

// TestRound_OthersGroupsAreForgotten: owners tell of the groups of all controllers. A count that they do not repeat is
// dropped.
func TestRound_OthersGroupsAreForgotten(t *testing.T) {
	r := newHarness(t, 10)
	q := r.queue("/t/a")
	r.others[q] = true
	g := r.group(q, "/t/a", "g")
	o := r.owner("a")
	for range 10 {
		o.says(g, r.extent(q), &pb.ShareCounts{Settled: 40})
	}
	r.round()
	if n := len(r.book.groups[g.ID].parts); n != 10 {
		t.Fatalf("%d shares are known", n)
	}
	last := r.extent(q)
	clear(o.shares)
	o.says(g, last, &pb.ShareCounts{Settled: 40})
	for began := r.now; r.now.Sub(began) < 2*untoldAfter; {
		r.round()
	}
	if got := r.book.groups[g.ID]; len(got.parts) != 1 || got.parts[last.ID] == nil {
		t.Errorf("%d shares are known, want the one that is there", len(got.parts))
	}
	clear(o.shares)
	for began := r.now; r.now.Sub(began) < 2*untoldAfter; {
		r.round()
	}
	if len(r.book.groups) != 0 {
		t.Errorf("%d groups are known that nobody tells of", len(r.book.groups))
	}
}

// TestRound_DeadLettersOfAnotherController: a dead letter queue is a queue of its own, so another controller may be
// responsible for it. Its messages are counted with the group all the same.
func TestRound_DeadLettersOfAnotherController(t *testing.T) {
	r := newHarness(t, 10)
	q, letters := r.queue("/t/a"), r.queue("/t/a/g.dlq")
	g := r.group(q, "/t/a", "g")
	g.DLQ = letters
	r.others[letters] = true
	e, open, sealed := r.extent(q), r.extent(letters), r.extent(letters)
	r.store(open, 3, 30)
	r.seal(sealed, 5, 50)
	r.SetGroups(q, []Group{pending(g, e)})
	r.round()
	if d := r.depth("/t/a", "g"); d.Dead != 8 {
		t.Errorf("%d dead letters, want 8", d.Dead)
	}
	r.store(open, 4, 40)
	r.round()
	if d := r.depth("/t/a", "g"); d.Dead != 9 {
		t.Errorf("%d dead letters, want 9", d.Dead)
	}
}

// TestRetries_OfItsGroupsOnly: hosts are told of groups that this controller is responsible for, and for a while of
// those that it is not responsible for any more.
func TestRetries_OfItsGroupsOnly(t *testing.T) {
	r := newHarness(t, 10)
	q := r.queue("/t/a")
	e := r.extent(q)
	g := r.group(q, "/t/a", "g")
	g.Spec.MaxDelayedRetries = 100
	r.SetGroups(q, []Group{pending(g, e)})
	r.store(e, 100, 1000)
	o := r.owner("a")
	o.says(g, e, &pb.ShareCounts{Settled: 40, Retries: 50})
	told := func(groups, left int) {
		t.Helper()
		if r.round(); len(o.told.Groups) != groups || len(o.told.Left) != left || o.told.Controller != "ctl" {
			t.Errorf("the host is told %v, want %d groups and %d left", o.told, groups, left)
		}
	}
	told(1, 0)
	r.others[q] = true // and no round of the controller has seen it yet
	told(0, 1)
	r.LeaveQueue(q)
	told(0, 1)
	r.others[q] = false
	r.SetGroups(q, []Group{pending(g, e)})
	told(1, 0)
	r.others[q] = true
	r.LeaveQueue(q)
	told(0, 1)
	r.now = r.now.Add(dispatch.RetriesKnownFor)
	told(0, 0)
	r.others[q] = false
	r.SetGroups(q, []Group{pending(g, e)})
	told(1, 0)
	r.DropQueue(q) // all of it was consumed
	told(0, 0)
}

// TestRound_TailsOfItsQueuesOnly: stores are asked for the ends of extents that are counted here.
func TestRound_TailsOfItsQueuesOnly(t *testing.T) {
	r := newHarness(t, 10)
	mine, other := r.queue("/t/mine"), r.queue("/t/other")
	r.others[other] = true
	e, merged, elsewhere := r.extent(mine), r.extent(other), r.extent(other)
	g := r.group(mine, "/t/mine", "g")
	r.merge(merged, g)
	for _, x := range []core.ExtentID{e.ID, merged.ID, elsewhere.ID} {
		r.tails[x] = &pb.GetTailsResponse_Tail{Committed: 5, Last: 5, Bytes: 50}
	}
	r.SetGroups(mine, []Group{pending(g, e, merged)})
	r.round()
	if _, asked := r.book.tails[elsewhere.ID]; len(r.book.tails) != 2 || asked {
		t.Errorf("the ends of %d extents are known, want those of 2", len(r.book.tails))
	}
}
