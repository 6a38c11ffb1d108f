package backlog

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/backlog"
	"github.com/columbamq/columba/metadata"
)

// counts leaves the rates and ages out of a comparison.
func counts(d *pb.Depth) *pb.Depth {
	return &pb.Depth{Ready: d.Ready, InFlight: d.InFlight, Delayed: d.Delayed, DelayedRetry: d.DelayedRetry, Blocked: d.Blocked, Dead: d.Dead, Bytes: d.Bytes, UnknownExtents: d.UnknownExtents}
}

func (r *harness) counts(path, group string, want *pb.Depth) {
	r.t.Helper()
	if diff := cmp.Diff(want, counts(r.depth(path, group)), protocmp.Transform()); diff != "" {
		r.t.Errorf("group %s of %s (-want +got):\n%s", group, path, diff)
	}
}

// TestRound_GroupThatNobodyConsumes: one group reads, the other has never had a consumer; then messages come that
// nobody reads.
func TestRound_GroupThatNobodyConsumes(t *testing.T) {
	r := newHarness(t, 1000)
	o := r.owner("o1")
	q := r.queue("/t/a")
	e := r.extent(q)
	busy, idle := r.group(q, "/t/a", "busy"), r.group(q, "/t/a", "idle")
	r.SetGroups(q, []Group{pending(busy, e), pending(idle, e)})
	o.says(busy, e, &pb.ShareCounts{Settled: 60, Ready: 10, InFlight: 5, Reading: true, Oldest: r.now.UnixMicro()})
	o.says(idle, e, &pb.ShareCounts{})
	o.next[share{idle.ID, e.ID}] = r.now.Add(-time.Hour).UnixMicro()
	r.store(e, 100, 1000)
	if _, err := r.List(&pb.ListDepthsRequest{}); core.CodeOf(err) != core.CodeUnavailable {
		t.Errorf("before the first round: %v", err)
	}
	r.round()
	r.counts("/t/a", "busy", &pb.Depth{Ready: 35, InFlight: 5, Bytes: 400})
	r.counts("/t/a", "idle", &pb.Depth{Ready: 100, Bytes: 1000})
	if got := r.depth("/t/a", "idle").OldestReadyMs; got != 3605_000 {
		t.Errorf("the oldest message is %d ms old, want an hour and a round", got)
	}
	r.store(e, 300, 3000)
	r.round()
	r.counts("/t/a", "busy", &pb.Depth{Ready: 235, InFlight: 5, Bytes: 2400})
	r.counts("/t/a", "idle", &pb.Depth{Ready: 300, Bytes: 3000})
	if got := r.depth("/t/a", "idle").PublishRate; got != 300.0/10 {
		t.Errorf("published at %g/s, want what came since the controller began, in two rounds", got)
	}
	if o.looked != 1 {
		t.Errorf("the owner was asked for an age %d times, want once: the next message is the same", o.looked)
	}
}

// TestRound_SharesWithoutOwner are counted by their checkpoints, when the controller begins and when their owner is
// gone.
func TestRound_SharesWithoutOwner(t *testing.T) {
	r := newHarness(t, 1000)
	q := r.queue("/t/a")
	e := r.extent(q)
	g := r.group(q, "/t/a", "g")
	r.SetGroups(q, []Group{pending(g, e)})
	r.store(e, 100, 1000)
	r.saved[share{g.ID, e.ID}] = backlog.Progress{Settled: 10, InFlight: 5}
	r.round()
	r.counts("/t/a", "g", &pb.Depth{Ready: 85, InFlight: 5, Bytes: 900})
	if got := r.depth("/t/a", "g").OldestReadyMs; got != 5000 {
		t.Errorf("nobody knows the age of the oldest message: %d ms; want the extent's", got)
	}

	o := r.owner("o1")
	o.says(g, e, &pb.ShareCounts{Counter: 7, Settled: 50})
	r.round()
	r.counts("/t/a", "g", &pb.Depth{Ready: 50, Bytes: 500})
	late := r.owner("o2") // an owner of before still has the share
	late.says(g, e, &pb.ShareCounts{Counter: 6, Settled: 20})
	r.round()
	r.counts("/t/a", "g", &pb.Depth{Ready: 50, Bytes: 500})

	r.saved[share{g.ID, e.ID}] = backlog.Progress{Settled: 55}
	o.down = true
	r.round()
	r.counts("/t/a", "g", &pb.Depth{Ready: 45, Bytes: 450})
	late.says(g, e, &pb.ShareCounts{Counter: 8, Settled: 70})
	r.round()
	r.counts("/t/a", "g", &pb.Depth{Ready: 30, Bytes: 300})
}

// TestRound_ManySharesWithoutOwner: a round reads some of many checkpoints, and the rounds after it read the others.
func TestRound_ManySharesWithoutOwner(t *testing.T) {
	const many = savedAtOnce + savedAtOnce/2
	r := newHarness(t, 10)
	for i := range many {
		path := fmt.Sprintf("/t/q%d", i)
		q := r.queue(path)
		e := r.extent(q)
		r.seal(e, 10, 100)
		r.SetGroups(q, []Group{pending(r.group(q, path, "g"), e)})
	}
	counted := func() (n int) {
		for _, g := range r.book.groups {
			n += int(g.counted)
		}
		return n
	}
	for _, want := range []int{savedAtOnce, many} {
		if r.round(); counted() != want {
			t.Errorf("%d shares are counted, want %d", counted(), want)
		}
	}
}

// TestRound_RestartedOwner: the run that told is over, the new one tells everything.
func TestRound_RestartedOwner(t *testing.T) {
	r := newHarness(t, 1000)
	q := r.queue("/t/a")
	e := r.extent(q)
	g := r.group(q, "/t/a", "g")
	r.SetGroups(q, []Group{pending(g, e)})
	r.store(e, 100, 1000)
	o := r.owner("o1")
	o.says(g, e, &pb.ShareCounts{Counter: 7, Settled: 50})
	r.round()
	o.run = core.RunID{ID: r.id()}
	o.position = 0
	o.says(g, e, &pb.ShareCounts{Counter: 7, Settled: 60})
	r.round()
	r.counts("/t/a", "g", &pb.Depth{Ready: 40, Bytes: 400})
}

// TestRound_WhatCounts: extents that were sealed, dropped by retention, purged, merged and thinned; a retry queue; dead
// letters.
func TestRound_WhatCounts(t *testing.T) {
	r := newHarness(t, 1000)
	q, letters, retries := r.queue("/t/a"), r.queue("/t/a/g.dlq"), r.queue("/t/a/g.retry")
	g := r.group(q, "/t/a", "g")
	g.DLQ, g.Retry = letters, retries
	other := r.group(q, "/t/a", "other")
	o := r.owner("o1")

	sealed, dropped, thinned := r.extent(q), r.extent(q), r.extent(q)
	r.seal(sealed, 100, 1000)
	r.seal(dropped, 100, 1000)
	dropped.State = core.ExtentRetired
	r.save(dropped)
	r.seal(thinned, 100, 1000)
	thinned.Removed = 25
	r.save(thinned)
	dead, merged, purged := r.extent(letters), r.extent(letters), r.extent(letters)
	r.seal(dead, 7, 70)
	dead.Removed = 2
	r.save(dead)
	r.seal(merged, 10, 100)
	r.merge(merged, g)
	r.seal(purged, 11, 110)
	purged.Home = core.Home{Kind: core.HomePurged}
	r.save(purged)
	parked := r.extent(retries)
	r.store(parked, 20, 200)
	r.merge(parked, g)

	r.SetGroups(q, []Group{pending(g, sealed, dropped, thinned, merged, parked), pending(other, sealed, dropped, thinned, merged, parked)})
	r.SetGroups(letters, nil)
	r.SetGroups(retries, nil)
	for _, x := range []metadata.GroupRecord{g, other} {
		o.says(x, sealed, &pb.ShareCounts{Settled: 90})
		o.says(x, dropped, &pb.ShareCounts{Settled: 1})
		o.says(x, thinned, &pb.ShareCounts{Settled: 25})
	}
	o.says(g, merged, &pb.ShareCounts{Settled: 4, Blocked: 1})
	o.says(g, parked, &pb.ShareCounts{Settled: 5, Unread: uint32(backlog.DelayedRetry), Asleep: true})
	r.round()
	r.counts("/t/a", "g", &pb.Depth{Ready: 10 + 75 + 5, Blocked: 1, Delayed: 15, DelayedRetry: 15, Dead: 5, Bytes: 100 + 750 + 60 + 150})
	r.counts("/t/a", "other", &pb.Depth{Ready: 10 + 75, Bytes: 100 + 750})

	r.seal(parked, 30, 300) // and it is found that the group has consumed the others
	r.SetGroups(q, []Group{pending(g, parked), pending(other)})
	r.round()
	r.counts("/t/a", "g", &pb.Depth{Delayed: 25, DelayedRetry: 25, Dead: 5, Bytes: 250})
	r.counts("/t/a", "other", &pb.Depth{})
	r.SetGroups(q, []Group{pending(other)})
	r.round()
	if out, err := r.List(&pb.ListDepthsRequest{}); err != nil || len(out.Depths) != 1 {
		t.Errorf("after the group was deleted: %v, %v", out, err)
	}
	r.DropQueue(q)
	r.round()
	if out, err := r.List(&pb.ListDepthsRequest{}); err != nil || len(out.Depths) != 0 {
		t.Errorf("without extents: %v, %v", out, err)
	}
	if n := len(r.book.groups) + len(r.book.looks) + len(r.book.tails); n != 0 {
		t.Errorf("%d things are remembered of what is gone", n)
	}
}

// TestRound_SilentStores: what is known stays, what is not known is said to be unknown, and another replica is asked.
func TestRound_SilentStores(t *testing.T) {
	r := newHarness(t, 1000)
	q := r.queue("/t/a")
	e := r.extent(q)
	g := r.group(q, "/t/a", "g")
	r.SetGroups(q, []Group{pending(g, e)})
	r.store(e, 100, 1000)
	r.silent["s1"], r.silent["s2"] = true, true
	r.round()
	r.counts("/t/a", "g", &pb.Depth{UnknownExtents: 1})
	r.silent["s2"] = false
	r.round()
	r.counts("/t/a", "g", &pb.Depth{Ready: 100, Bytes: 1000})
	r.store(e, 200, 2000)
	r.silent["s2"] = true
	r.round()
	r.counts("/t/a", "g", &pb.Depth{Ready: 100, Bytes: 1000})
	if own, _ := r.book.published(); len(own) != 1 || own[0].messages != 100 {
		t.Errorf("published: %+v", own)
	}
}

// TestRound_Pages: an owner tells in pages, and what changes meanwhile is told again.
func TestRound_Pages(t *testing.T) {
	r := newHarness(t, 1000)
	o := r.owner("o1")
	o.page = 2
	var groups []metadata.GroupRecord
	for i := range 7 {
		path := fmt.Sprintf("/t/q%d", i)
		q := r.queue(path)
		e := r.extent(q)
		g := r.group(q, path, "g")
		r.SetGroups(q, []Group{pending(g, e)})
		r.store(e, 10, 100)
		o.says(g, e, &pb.ShareCounts{Settled: uint64(i)})
		groups = append(groups, g)
	}
	r.round()
	for i, g := range groups {
		r.counts(g.Spec.Queue, "g", &pb.Depth{Ready: uint64(10 - i), Bytes: uint64(100 - 10*i)})
	}
	before := r.calls.Load()
	r.round()
	if got := r.calls.Load() - before; got != 2 {
		t.Errorf("%d calls when nothing has changed, want one to a store and one to the owner", got)
	}
}

// TestPublished: what was stored before the controller began is not counted, what is stored after is, also in extents
// that came and ended between two rounds. A counter never falls.
func TestPublished(t *testing.T) {
	r := newHarness(t, 2)
	read := func() map[string]uint64 {
		out := make(map[string]uint64)
		own, rest := r.book.published()
		for _, p := range own {
			out[p.path] = p.messages
		}
		if rest.messages > 0 {
			out["rest"] = rest.messages
		}
		return out
	}
	want := func(want map[string]uint64) {
		t.Helper()
		if diff := cmp.Diff(want, read()); diff != "" {
			t.Errorf("published (-want +got):\n%s", diff)
		}
	}
	a, b, c, letters := r.queue("/t/a"), r.queue("/t/b"), r.queue("/t/c"), r.queue("/t/a/g.dlq")
	old, hidden := r.extent(a), r.extent(a)
	for _, e := range []*catalog.Extent{old, hidden} {
		e.Created = r.now.Add(-time.Hour)
		r.save(e)
	}
	r.store(old, 1000, 10_000)
	delete(r.tails, hidden.ID) // no store tells at first
	for _, q := range []core.QueueID{a, b, c, letters} {
		r.SetGroups(q, nil)
	}
	r.round()
	want(map[string]uint64{})
	r.store(old, 1010, 10_100)
	r.store(hidden, 500, 5000)
	r.round()
	want(map[string]uint64{"/t/a": 10})
	short := r.extent(b)
	r.seal(short, 7, 70)
	r.store(hidden, 501, 5010)
	dead := r.extent(letters)
	r.seal(dead, 3, 30)
	r.round()
	want(map[string]uint64{"/t/a": 11, "/t/b": 7})
	more := r.extent(c)
	r.store(more, 9, 90)
	r.round()
	want(map[string]uint64{"/t/a": 11, "/t/b": 7, "rest": 9})
	for _, e := range r.extents.Of(b) { // retention
		r.extents.Remove(e.ID)
	}
	r.DropQueue(b)
	r.store(more, 10, 100)
	r.round()
	want(map[string]uint64{"/t/a": 11, "/t/c": 1, "rest": 9})
}

// TestMeter: 100 a second for ten seconds, then nothing.
func TestMeter(t *testing.T) {
	var m meter
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	m.begin(7, at(0))
	for i, step := range []struct {
		total uint64
		want  float64
		grows bool
	}{{507, 100, true}, {1007, 100, true}, {1007, 50, true}, {1007, 0, true}, {1007, 0, false}} {
		if grows, got := m.note(step.total, at(5*(i+1))), m.perSecond(); got != step.want || grows != step.grows {
			t.Errorf("after %d s: %g/s, grows %v; want %+v", 5*(i+1), got, grows, step)
		}
	}
}

// TestList: orders, pages, sums over queues, and what is refused.
func TestList(t *testing.T) {
	r := newHarness(t, 1000)
	o := r.owner("o1")
	for i, path := range []string{"/t/a", "/t/b", "/u/c"} {
		q := r.queue(path)
		e := r.extent(q)
		r.store(e, core.Seq(10*(i+1)), 100)
		one, two := r.group(q, path, "one"), r.group(q, path, "two")
		r.SetGroups(q, []Group{pending(one, e), pending(two, e)})
		o.says(one, e, &pb.ShareCounts{Oldest: r.now.UnixMicro() - int64(i)})
		o.says(two, e, &pb.ShareCounts{Settled: 10})
	}
	r.SetGroups(r.queue("/t/z"), nil)
	r.round()
	list := func(req *pb.ListDepthsRequest) (out []string) {
		t.Helper()
		for {
			page, err := r.List(req)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range page.Depths {
				out = append(out, fmt.Sprintf("%s %s %d", d.Queue, d.Group, d.Ready))
			}
			if req.After = page.Next; page.Next == "" {
				return out
			}
		}
	}
	byBacklog := []string{"/u/c one 30", "/t/b one 20", "/u/c two 20", "/t/a one 10", "/t/b two 10", "/t/a two 0"}
	for limit := range int32(8) {
		if got := list(&pb.ListDepthsRequest{Limit: limit}); !slices.Equal(got, byBacklog) {
			t.Errorf("by backlog, %d a page: %q", limit, got)
		}
	}
	if got := list(&pb.ListDepthsRequest{Sort: "name", Prefix: "/t/", Limit: 3}); !slices.Equal(got, []string{"/t/a one 10", "/t/a two 0", "/t/b one 20", "/t/b two 10"}) {
		t.Errorf("by name, of a prefix: %q", got)
	}
	if got := list(&pb.ListDepthsRequest{ByQueue: true, Limit: 1}); !slices.Equal(got, []string{"/u/c  50", "/t/b  30", "/t/a  10", "/t/z  0"}) {
		t.Errorf("queues by backlog: %q", got)
	}
	if got := list(&pb.ListDepthsRequest{ByQueue: true, Sort: "age"}); !slices.Equal(got[2:], []string{"/t/a  10", "/t/z  0"}) {
		t.Errorf("queues by age: %q", got)
	}
	if got := list(&pb.ListDepthsRequest{ByQueue: true, Queues: []string{"/t/b", "/none"}}); !slices.Equal(got, []string{"/t/b  30"}) {
		t.Errorf("one queue: %q", got)
	}
	for _, bad := range []*pb.ListDepthsRequest{{Sort: "size"}, {Limit: -1}, {Limit: 1001}, {After: "x"}, {After: "1 /t/a"}, {After: "-1 /t/a g"}} {
		if _, err := r.List(bad); core.CodeOf(err) != core.CodeBadArgument {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if _, err := r.List(&pb.ListDepthsRequest{Queues: make([]string, 1001)}); core.CodeOf(err) != core.CodeTooLarge {
		t.Errorf("1001 queues: %v", err)
	}
}
