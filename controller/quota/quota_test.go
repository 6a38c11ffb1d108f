package quota

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/quota"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// harness is a keeper over metadata in memory, with extents that the test says there are.
type harness struct {
	*Keeper
	t       *testing.T
	meta    metadata.Store
	now     time.Time
	extents *catalog.Extents

	consumed map[string]uint64 // by group and extent
	duties   duties
	inputs   []core.RunID
}

// duties are those of a controller that has been responsible for everything for long, unless a test says else.
type duties struct {
	others    bool    // another one is responsible
	only      core.ID // for all but this key; zero: for none
	handovers atomic.Uint64
	since     time.Duration // ago
}

func (d *duties) Responsible(key core.ID) bool {
	return !d.others && (d.only.IsZero() || d.only == key)
}
func (d *duties) Handovers() uint64        { return d.handovers.Load() }
func (d *duties) Unchanged() time.Duration { return d.since }

func newHarness(t *testing.T) *harness {
	r := newHarnessOver(t, memory.New(), nil)
	r.now = time.Unix(1_700_000_000, 0)
	return r
}

// newHarnessOver has a store and a clock of its own; nil: the test sets the time.
func newHarnessOver(t *testing.T, meta metadata.Store, now func() time.Time) *harness {
	r := &harness{t: t, meta: meta, extents: catalog.NewExtents(), duties: duties{since: time.Hour}}
	t.Cleanup(func() { r.meta.Close() })
	if now == nil {
		now = func() time.Time { return r.now }
	} else {
		r.now = now()
	}
	r.consumed = make(map[string]uint64)
	r.Keeper = New(r.meta, now, Sources{
		Extents: r.extents,
		Settled: func(_ context.Context, g metadata.GroupRecord, id core.ExtentID) (uint64, error) {
			return r.consumed[g.ID.String()+id.String()], nil
		},
		Alone: true, Duties: &r.duties, Inputs: func() []core.RunID { return r.inputs },
		Log: slog.New(slog.DiscardHandler), Wait: func(context.Context) error { return nil },
	})
	return r
}

// measured has a request note what is to be measured, and measures what is due.
func (r *harness) measured(req *pb.LeaseQuotaRequest) {
	r.t.Helper()
	ctx := context.Background()
	id, err := core.IDFromBytes(req.Run)
	r.ok(err)
	queues, _, err := r.readQueues(ctx, req.Queues)
	r.ok(err)
	needs, queues, err := r.own(req.Namespaces, queues)
	if err != nil {
		return
	}
	limits, _, queues, err := r.readLimits(ctx, needs, queues, nil)
	r.ok(err)
	r.takeFills(core.RunID{ID: id}, queues, limits, r.Duties.Handovers())
	r.want(queues, limits, r.tenure())
	jobs, _ := r.due(r.Keeper.now())
	for _, j := range jobs {
		r.measure(ctx, j)
	}
}

func (r *harness) ok(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *harness) namespace(spec core.NamespaceSpec) {
	r.t.Helper()
	r.ok(metadata.Create(context.Background(), r.meta, metadata.Namespaces, metadata.NamespaceKey(spec.Name), metadata.NamespaceRecord{Spec: spec}))
}

func (r *harness) queue(path string, cap int64) core.QueueID {
	r.t.Helper()
	id := core.QueueID{ID: core.NewID(r.now)}
	spec := core.QueueSpec{Path: path, MaxBacklog: cap}.WithDefaults(1, 1)
	r.ok(metadata.Create(context.Background(), r.meta, metadata.Queues, metadata.QueueKey(id), metadata.QueueRecord{ID: id, Spec: spec}))
	r.ok(metadata.Create(context.Background(), r.meta, metadata.Names, metadata.NameKey(path), metadata.NameRecord{Queue: id, Spec: spec}))
	return id
}

func (r *harness) group(queue core.QueueID, name string) core.GroupID {
	r.t.Helper()
	g := metadata.GroupRecord{ID: core.GroupID{ID: core.NewID(r.now)}, Queue: queue, Spec: core.GroupSpec{Name: name}.WithDefaults(), Started: true, Epoch: 2}
	r.ok(metadata.Create(context.Background(), r.meta, metadata.Groups, metadata.GroupKey(queue, name), g))
	return g.ID
}

// extent is one more of the queue, written by the first run, with its end unless l is 0.
func (r *harness) extent(queue core.QueueID, l core.Seq, bytes uint64) core.ExtentID {
	id := core.ExtentID{ID: core.NewID(r.now)}
	e := catalog.Extent{ExtentRecord: metadata.ExtentRecord{Extent: core.Extent{ID: id, Queue: queue, InputRun: run(1)}}, State: core.ExtentOpen, L: l, Bytes: bytes}
	if l > 0 {
		e.State = core.ExtentSealed
	}
	r.extents.Put(e)
	return id
}

func (r *harness) settled(group core.GroupID, extent core.ExtentID, n uint64) {
	r.consumed[group.String()+extent.String()] = n
}

func (r *harness) done(group core.GroupID, extent core.ExtentID, l core.Seq) {
	r.t.Helper()
	r.ok(metadata.Write(context.Background(), r.meta, metadata.Dones, metadata.DoneKey(group, extent, 2), metadata.DoneRecord{L: l, Epoch: 2}, r.now, 0, metadata.One))
}

func run(i int) core.RunID { return core.RunID{ID: core.ID{15: byte(i)}} }

func (r *harness) lease(run core.RunID, req *pb.LeaseQuotaRequest) *pb.LeaseQuotaResponse {
	r.t.Helper()
	req.Run = run.ID[:]
	r.measured(req)
	out, err := r.Lease(context.Background(), req)
	r.ok(err)
	return out
}

// room asks for the room of queues, without anything open.
func (r *harness) room(run core.RunID, fills ...*pb.QueueFill) []int64 {
	r.t.Helper()
	var out []int64
	for _, l := range r.lease(run, &pb.LeaseQuotaRequest{Queues: fills}).Queues {
		out = append(out, l.Room)
	}
	return out
}

func fillOf(queue core.QueueID, pending uint64, open ...*pb.ExtentFill) *pb.QueueFill {
	return &pb.QueueFill{Queue: queue.ID[:], Pending: pending, Extents: open}
}

func TestLease_RatesAreSharedByNeed(t *testing.T) {
	r := newHarness(t)
	r.namespace(core.NamespaceSpec{Name: "/acme", MessagesPerSecond: 1000, BytesPerSecond: 1_000_000})
	ask := func(run core.RunID, messages float64) *pb.NamespaceLease {
		return r.lease(run, &pb.LeaseQuotaRequest{Namespaces: []*pb.NamespaceNeed{{Namespace: "/acme", Messages: messages, Bytes: messages * 1000}}}).Namespaces[0]
	}
	a, b := run(1), run(2)
	if l := ask(a, 3000); l.Messages != 1000 || l.Bytes != 1_000_000 || l.Hosts != 1 {
		t.Errorf("the only host got %v", l)
	}
	ask(b, 100)
	for range 2 {
		r.now = r.now.Add(quota.RenewEvery)
		la, lb := ask(a, 3000), ask(b, 100)
		if sum := la.Messages + lb.Messages; sum > 1000.001 {
			t.Errorf("%g are leased of 1000", sum)
		}
		if lb.Hosts != 2 {
			t.Errorf("%d hosts share, want 2", lb.Hosts)
		}
	}
	if la, lb := ask(a, 3000), ask(b, 100); la.Messages < 895 || lb.Messages < 99 {
		t.Errorf("who needs 3000 has %g, who needs 100 has %g", la.Messages, lb.Messages)
	}
}

func TestLease_WithoutLimits(t *testing.T) {
	r := newHarness(t)
	q := r.queue("/free/q", 0)
	out := r.lease(run(1), &pb.LeaseQuotaRequest{Namespaces: []*pb.NamespaceNeed{{Namespace: "/free"}}, Queues: []*pb.QueueFill{fillOf(q, 0)}})
	if len(out.Namespaces)+len(out.Queues) != 0 {
		t.Errorf("leases of what has no limits: %v", out)
	}
}

// TestLease_BacklogIsThatOfTheGroupFurthestBehind has two groups, one of which is behind.
func TestLease_BacklogIsThatOfTheGroupFurthestBehind(t *testing.T) {
	r := newHarness(t)
	q := r.queue("/acme/q", 10_000)
	fast, slow := r.group(q, "fast"), r.group(q, "slow")
	old, open := r.extent(q, 100, 4000), r.extent(q, 0, 0)
	r.done(fast, old, 100)
	r.settled(slow, old, 25)  // 3000 bytes left
	r.settled(fast, open, 10) // of 20 messages of 2000 bytes: 1000 left
	fill := fillOf(q, 500, &pb.ExtentFill{Extent: open.ID[:], Last: 20, Bytes: 2000})
	if got := r.room(run(1), fill); got[0] != 10_000-3000-2000-500 {
		t.Errorf("room for %d bytes, want %d: the slow group has 5000 before it, and 500 are on their way", got[0], 4500)
	}
	r.done(slow, old, 100)
	r.settled(slow, open, 20)
	r.now = r.now.Add(2 * time.Second)
	if got := r.room(run(1), fill); got[0] != 10_000-1000-500 {
		t.Errorf("room for %d bytes, want %d: now the fast one is behind", got[0], 8500)
	}
}

func TestLease_BacklogWithoutGroups(t *testing.T) {
	r := newHarness(t)
	q := r.queue("/acme/q", 10_000)
	r.extent(q, 10, 4000)
	open := r.extent(q, 0, 0)
	if got := r.room(run(1), fillOf(q, 0, &pb.ExtentFill{Extent: open.ID[:], Last: 5, Bytes: 1000})); got[0] != 5000 {
		t.Errorf("room for %d bytes, want what is not stored", got[0])
	}
}

// TestLease_RoomIsNeverGivenTwice has hosts fill a queue as fast as they are let, while nobody consumes: it is never
// above its cap.
func TestLease_RoomIsNeverGivenTwice(t *testing.T) {
	r := newHarness(t)
	const cap = 1_000_000
	q := r.queue("/acme/q", cap)
	r.group(q, "g")
	type host struct {
		run   core.RunID
		open  core.ExtentID
		bytes int64
	}
	hosts := make([]*host, 3)
	for i := range hosts {
		hosts[i] = &host{run: run(i + 1), open: r.extent(q, 0, 0)}
		r.extents.Change(hosts[i].open, func(e *catalog.Extent) { e.InputRun = run(i + 1) })
	}
	stored := int64(0)
	for i := range 60 {
		h := hosts[i%len(hosts)]
		fill := fillOf(q, 0, &pb.ExtentFill{Extent: h.open.ID[:], Last: uint64(h.bytes), Bytes: uint64(h.bytes)})
		fill.Need = 1e6
		took := r.room(h.run, fill)[0]
		h.bytes += took // all at once
		stored += took
		if stored > cap {
			t.Fatalf("%d bytes are stored, the cap is %d", stored, cap)
		}
		r.now = r.now.Add(quota.RenewEvery / 3)
	}
	if stored < cap*99/100 {
		t.Errorf("%d bytes could be stored of %d", stored, cap)
	}
}

// TestLease_BacklogOfANamespace counts all of its queues, also those that nobody publishes to now, and dead letters
// not.
func TestLease_BacklogOfANamespace(t *testing.T) {
	r := newHarness(t)
	r.namespace(core.NamespaceSpec{Name: "/acme", BacklogBytes: 100_000})
	quiet := r.queue("/acme/quiet", 0)
	r.extent(quiet, 10, 60_000)
	letters := core.QueueID{ID: core.NewID(r.now)}
	r.ok(metadata.Create(context.Background(), r.meta, metadata.Names, metadata.NameKey("/acme/quiet/g.dlq"), metadata.NameRecord{Queue: letters, Owner: core.GroupID{ID: core.NewID(r.now)}}))
	r.extent(letters, 10, 30_000)
	r.queue("/acmelike/q", 0) // another namespace
	var fills []*pb.QueueFill
	for i := range 2 {
		q := r.queue(fmt.Sprintf("/acme/q%d", i), 0)
		fills = append(fills, fillOf(q, 0))
	}
	got := r.room(run(1), fills...)
	if got[0]+got[1] != 40_000 {
		t.Errorf("room for %v, want 40000 together", got)
	}
	small := r.queue("/acme/small", 1000)
	r.now = r.now.Add(quota.LeaseFor)
	got = r.room(run(1), append(fills, fillOf(small, 0))...)
	if got[2] != 1000 {
		t.Errorf("room for %d bytes in a queue with a cap of 1000", got[2])
	}
}

// TestLease_LargestBacklog: a float64 rounds the largest limit up, to a number that is no int64.
func TestLease_LargestBacklog(t *testing.T) {
	r := newHarness(t)
	r.namespace(core.NamespaceSpec{Name: "/acme", BacklogBytes: math.MaxInt64})
	fills := []*pb.QueueFill{fillOf(r.queue("/acme/q", 0), 0), fillOf(r.queue("/free/q", math.MaxInt64), 0)}
	for _, room := range r.room(run(1), fills...) {
		if room < math.MaxInt64/2 {
			t.Errorf("room for %d bytes in an empty queue, its limit is %d", room, int64(math.MaxInt64))
		}
	}
}

func TestLease_RefusesGarbage(t *testing.T) {
	r := newHarness(t)
	for name, req := range map[string]*pb.LeaseQuotaRequest{
		"no run":        {},
		"a short queue": {Run: make([]byte, 16), Queues: []*pb.QueueFill{{Queue: []byte{1}}}},
		"no namespace":  {Run: make([]byte, 16), Namespaces: []*pb.NamespaceNeed{{Namespace: "a\x00b"}}},
		"too many":      {Run: make([]byte, 16), Namespaces: make([]*pb.NamespaceNeed, mostNamespaces+1)},
	} {
		if _, err := r.Lease(context.Background(), req); err == nil {
			t.Errorf("%s: it was answered", name)
		}
	}
}

// TestLease_ForgetsWhatNobodyAsksFor keeps the memory of a controller in bounds.
func TestLease_ForgetsWhatNobodyAsksFor(t *testing.T) {
	r := newHarness(t)
	for i := range 100 {
		r.room(run(1), fillOf(r.queue(fmt.Sprintf("/n/q%d", i), 1000), 0))
	}
	r.now = r.now.Add(2 * forgetAfter)
	r.room(run(1), fillOf(r.queue("/n/last", 1000), 0))
	r.now = r.now.Add(2 * forgetAfter)
	r.room(run(1))
	if n := len(r.Keeper.mu.queues); n > 1 {
		t.Errorf("%d queues are kept, nobody asks for them", n)
	}
}

// TestLease_FillsOfTheWriterOnly: only the run that writes an extent says how full it is, and no extent is fuller than
// an extent may be.
func TestLease_FillsOfTheWriterOnly(t *testing.T) {
	r := newHarness(t)
	q := r.queue("/acme/q", 3*mostBytes)
	open, made := r.extent(q, 0, 0), core.ExtentID{ID: core.NewID(r.now)} // made: by another controller
	told := func(by core.RunID, e core.ExtentID, bytes uint64, want uint64) {
		t.Helper()
		r.room(by, fillOf(q, 0, &pb.ExtentFill{Extent: e.ID[:], Last: 5, Bytes: bytes}))
		r.mu.Lock()
		defer r.mu.Unlock()
		if got := r.mu.queues[q].fills[e].bytes; got != want {
			t.Errorf("after a fill of %d bytes of run %s the extent counts as one of %d bytes, want %d", bytes, by, got, want)
		}
	}
	told(run(2), open, 9e18, 0)
	told(run(1), open, 1000, 1000)
	told(run(2), open, 9e18, 1000)
	told(run(1), open, 9e18, mostBytes)
	r.Alone = false
	told(run(1), made, 1000, 1000)
	told(run(2), made, 9e18, 1000)
}

// TestLease_BoundsWhatAHostTells: a caller that tells of extents that nobody knows, or of one queue many times, costs
// no more than a host that tells of all it has.
func TestLease_BoundsWhatAHostTells(t *testing.T) {
	r := newHarness(t)
	r.Alone = false
	free, capped := r.queue("/free/q", 0), r.queue("/acme/q", 10_000)
	known := r.extent(capped, 0, 0)
	var made []*pb.ExtentFill
	for range 2 * mostFills {
		id := core.NewID(r.now)
		made = append(made, &pb.ExtentFill{Extent: id[:], Last: 1, Bytes: 1})
	}
	made = append(made, &pb.ExtentFill{Extent: known.ID[:], Last: 1, Bytes: 1})
	out := r.lease(run(1), &pb.LeaseQuotaRequest{Queues: []*pb.QueueFill{fillOf(free, 0, made...), fillOf(capped, 0, made...), fillOf(capped, 0)}})
	if n := len(out.Queues); n != 1 {
		t.Errorf("%d leases of one queue with a cap", n)
	}
	if r.Keeper.mu.queues[free] != nil {
		t.Error("something is kept of a queue without limits")
	}
	b := r.Keeper.mu.queues[capped]
	if n := len(b.fills); n > mostFills+1 {
		t.Errorf("%d extents are kept of a queue", n)
	}
	if _, told := b.fills[known]; !told {
		t.Error("an extent that is known is not among them")
	}
}
