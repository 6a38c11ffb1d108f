package backlog

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/backlog"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// harness is a collector and a cluster that a test, or a benchmark, makes up. Calls go to it without a network; it
// counts them and their bytes.
type harness struct {
	*Collector
	t       testing.TB
	meta    *countedStore
	now     time.Time
	serial  uint64
	extents *catalog.Extents
	tails   map[core.ExtentID]*pb.GetTailsResponse_Tail
	silent  map[core.HostID]bool // stores that do not answer
	owners  map[core.HostID]*fakeOwner
	saved   map[share]backlog.Progress
	others  map[core.QueueID]bool // queues of another controller
	calls   atomic.Int64
	bytes   atomic.Int64
}

// countedStore counts what is read of the metadata.
type countedStore struct {
	metadata.Store
	reads atomic.Int64
}

func (s *countedStore) GetRows(ctx context.Context, t metadata.Table, keys []metadata.Key, c metadata.Consistency) ([]metadata.Row, error) {
	s.reads.Add(1)
	return metadata.GetRows(ctx, s.Store, t, keys, c)
}

func newHarness(t testing.TB, most int) *harness {
	r := &harness{
		t: t, meta: &countedStore{Store: memory.New()}, now: time.Unix(1_800_000_000, 0), extents: catalog.NewExtents(),
		tails: make(map[core.ExtentID]*pb.GetTailsResponse_Tail), silent: make(map[core.HostID]bool),
		owners: make(map[core.HostID]*fakeOwner), saved: make(map[share]backlog.Progress), others: make(map[core.QueueID]bool),
	}
	t.Cleanup(func() { r.meta.Close() })
	r.Collector = New(Config{Meta: r.meta, Self: "ctl", Extents: r.extents, Cluster: r, Now: func() time.Time { return r.now }, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Every: 5 * time.Second, Timeout: time.Second, Series: most})
	return r
}

func (r *harness) id() core.ID {
	r.serial++
	return core.NewID(r.now.Add(time.Duration(r.serial) * time.Millisecond))
}

// queue makes a queue.
func (r *harness) queue(path string) core.QueueID {
	r.t.Helper()
	id := core.QueueID{ID: r.id()}
	q := metadata.QueueRecord{ID: id, Spec: core.QueueSpec{Path: path}}
	if _, err := core.ParseQueuePath(path); err != nil {
		q.Owner = core.GroupID(id)
	}
	if err := metadata.Create(r.t.Context(), r.meta, metadata.Queues, metadata.QueueKey(id), q); err != nil {
		r.t.Fatal(err)
	}
	return id
}

// extent makes an open extent of a queue. A change of it counts once it is saved.
func (r *harness) extent(queue core.QueueID) *catalog.Extent {
	e := &catalog.Extent{State: core.ExtentOpen}
	e.Extent = core.Extent{ID: core.ExtentID{ID: r.id()}, Queue: queue, Kind: core.KindLog, Replicas: []core.HostID{"s1", "s2"}}
	e.Created = r.now
	r.extents.Put(*e)
	r.store(e, 0, 0)
	return e
}

func (r *harness) save(e *catalog.Extent) {
	r.extents.Change(e.ID, func(x *catalog.Extent) { *x = *e })
}

// store makes an open extent so long.
func (r *harness) store(e *catalog.Extent, last core.Seq, bytes uint64) {
	r.tails[e.ID] = &pb.GetTailsResponse_Tail{Committed: uint64(last), Last: uint64(last) + 1, Bytes: bytes}
}

// seal fixes the end of an extent.
func (r *harness) seal(e *catalog.Extent, last core.Seq, bytes uint64) {
	e.State, e.L, e.Bytes = core.ExtentSealed, last, bytes
	delete(r.tails, e.ID)
	r.save(e)
}

// merge has a group read an extent.
func (r *harness) merge(e *catalog.Extent, g metadata.GroupRecord) {
	e.Home = core.MergedInto(g.Queue, g.ID)
	r.save(e)
}

func (r *harness) group(queue core.QueueID, path, name string) metadata.GroupRecord {
	return metadata.GroupRecord{ID: core.GroupID{ID: r.id()}, Queue: queue, Spec: core.GroupSpec{Queue: path, Name: name}, Started: true}
}

// pending says what a group has yet to consume.
func pending(g metadata.GroupRecord, extents ...*catalog.Extent) Group {
	out := Group{GroupRecord: g}
	for _, e := range extents {
		out.Pending = append(out.Pending, e.ID)
	}
	return out
}

// owner makes an output host.
func (r *harness) owner(id core.HostID) *fakeOwner {
	o := &fakeOwner{r: r, id: id, run: core.RunID{ID: r.id()}, shares: make(map[share]*pb.ShareCounts), at: make(map[share]uint64), next: make(map[share]int64)}
	r.owners[id] = o
	return o
}

// round lets five seconds pass, and computes.
func (r *harness) round() {
	r.now = r.now.Add(5 * time.Second)
	r.Round(r.t.Context())
}

// depth is the row of a group.
func (r *harness) depth(path, group string) *pb.Depth {
	r.t.Helper()
	out, err := r.List(&pb.ListDepthsRequest{Queues: []string{path}})
	if err != nil {
		r.t.Fatal(err)
	}
	i := slices.IndexFunc(out.Depths, func(d *pb.Depth) bool { return d.Group == group })
	if i < 0 {
		r.t.Fatalf("no row of group %s of %s in %v", group, path, out.Depths)
	}
	return out.Depths[i]
}

func (r *harness) Complete() bool { return true }

func (r *harness) Responsible(key core.ID) bool { return !r.others[core.QueueID{ID: key}] }

func (r *harness) Store(id core.HostID) (columbav1connect.StoreServiceClient, bool) {
	return fakeTails{r: r}, !r.silent[id]
}

func (r *harness) Outputs() (out []membership.Host) {
	for _, o := range r.owners {
		if !o.down {
			out = append(out, membership.Host{ID: o.id, Roles: []string{"outputhost"}, Address: string(o.id), Run: o.run})
		}
	}
	return out
}

func (r *harness) Output(addr string) columbav1connect.OutputServiceClient {
	return r.owners[core.HostID(addr)]
}

func (r *harness) Saved(_ context.Context, g metadata.GroupRecord, e catalog.Extent) (backlog.Progress, error) {
	r.meta.reads.Add(1)
	return r.saved[share{g.ID, e.ID}], nil
}

// count notes the size of a call.
func (r *harness) count(messages ...proto.Message) {
	r.calls.Add(1)
	for _, m := range messages {
		r.bytes.Add(int64(proto.Size(m)))
	}
}

type fakeTails struct {
	columbav1connect.StoreServiceClient
	r *harness
}

func (f fakeTails) GetTails(_ context.Context, req *connect.Request[pb.GetTailsRequest]) (*connect.Response[pb.GetTailsResponse], error) {
	if len(req.Msg.Extents) > 1000 {
		return nil, fmt.Errorf("%d extents in one call", len(req.Msg.Extents))
	}
	out := &pb.GetTailsResponse{}
	for _, b := range req.Msg.Extents {
		t := f.r.tails[core.ExtentID{ID: core.ID(b)}]
		if t == nil {
			t = &pb.GetTailsResponse_Tail{Absent: true}
		}
		out.Tails = append(out.Tails, t)
	}
	f.r.count(req.Msg, out)
	return connect.NewResponse(out), nil
}

// fakeOwner is an output host.
type fakeOwner struct {
	columbav1connect.OutputServiceClient
	r        *harness
	id       core.HostID
	run      core.RunID
	down     bool // membership does not have it
	refuses  bool
	position uint64
	shares   map[share]*pb.ShareCounts
	at       map[share]uint64
	next     map[share]int64 // enqueue times that looking finds
	told     *pb.LimitRetriesRequest
	page     int // groups in one answer; 0: all
	looked   int
}

// says has the owner count a share so.
func (o *fakeOwner) says(g metadata.GroupRecord, e *catalog.Extent, c *pb.ShareCounts) {
	id := e.ID
	c.Extent = id.ID[:]
	if c.Counter == 0 {
		c.Counter = 1
	}
	o.position++
	o.shares[share{g.ID, e.ID}], o.at[share{g.ID, e.ID}] = c, o.position
}

func (o *fakeOwner) LimitRetries(_ context.Context, req *connect.Request[pb.LimitRetriesRequest]) (*connect.Response[pb.LimitRetriesResponse], error) {
	o.told = req.Msg
	return connect.NewResponse(&pb.LimitRetriesResponse{}), nil
}

func (o *fakeOwner) CountShares(_ context.Context, req *connect.Request[pb.CountSharesRequest]) (*connect.Response[pb.CountSharesResponse], error) {
	if o.refuses {
		return nil, convert.RPCError(core.Errorf(core.CodeUnavailable, "not now"))
	}
	for _, l := range req.Msg.Look {
		s := share{core.GroupID{ID: core.ID(l.Group)}, core.ExtentID{ID: core.ID(l.Extent)}}
		o.looked++
		if c := o.shares[s]; c != nil && o.next[s] > 0 && c.Oldest != o.next[s] {
			o.position++
			c.Oldest, o.at[s] = o.next[s], o.position
		}
	}
	since := req.Msg.Since
	if !slices.Equal(req.Msg.Run, o.run.ID[:]) {
		since = 0
	}
	groups := make(map[core.GroupID]*pb.GroupCounts)
	for s, c := range o.shares {
		if o.at[s] <= since || slices.Compare(s.group.ID[:], req.Msg.After) <= 0 {
			continue
		}
		if groups[s.group] == nil {
			id := s.group
			groups[s.group] = &pb.GroupCounts{Group: id.ID[:]}
		}
		groups[s.group].Shares = append(groups[s.group].Shares, c)
	}
	out := &pb.CountSharesResponse{Run: o.run.ID[:], Position: o.position}
	for _, g := range groups {
		out.Groups = append(out.Groups, g)
	}
	slices.SortFunc(out.Groups, func(a, b *pb.GroupCounts) int { return slices.Compare(a.Group, b.Group) })
	if o.page > 0 && len(out.Groups) > o.page {
		out.Groups = out.Groups[:o.page]
		out.More = out.Groups[o.page-1].Group
	}
	o.r.count(req.Msg, out)
	return connect.NewResponse(out), nil
}
