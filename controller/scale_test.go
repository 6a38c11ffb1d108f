package controller

import (
	"context"
	"flag"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/cassandra"
	"github.com/columbamq/columba/metadata/memory"
	"github.com/columbamq/columba/metadata/pebble"
	"github.com/columbamq/columba/metadata/scale"
)

var (
	scaleFlag     = flag.Int("scale", 40, "queues of TestScale, each with a group and ten extents")
	cassandraFlag = flag.String("cassandra", "", "the URL of an empty keyspace for TestScale_OnCassandra")
)

// rowsRead counts the rows, and the lists of rows, that are asked for.
type rowsRead struct {
	metadata.Store
	n      atomic.Int64
	queues atomic.Int64 // of those the rows of queues
}

func (x *rowsRead) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	x.n.Add(1)
	return x.Store.Get(ctx, t, k, c)
}

func (x *rowsRead) GetRows(ctx context.Context, t metadata.Table, keys []metadata.Key, c metadata.Consistency) ([]metadata.Row, error) {
	x.n.Add(int64(len(keys)))
	if t == metadata.Queues {
		x.queues.Add(int64(len(keys)))
	}
	return metadata.GetRows(ctx, x.Store, t, keys, c)
}

func (x *rowsRead) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	x.n.Add(1)
	return x.Store.List(ctx, t, partition, after, limit, c)
}

// TestScale_Idle: a controller reads few rows while nothing happens: each forty minutes the groups of a queue and its
// own row, and what does not go by the number of queues, besides the hints and seal rows of every ten minutes. The test
// also measures a controller among many extents. In virtual time an idle minute takes as long as the processor works;
// the metadata are in the memory of the test, so that Cassandra and its driver are not in the figures.
//
//	go test ./controller -run TestScale -v -scale 10000
func TestScale_Idle(t *testing.T) {
	meta := &rowsRead{Store: memory.New()}
	bubble(t, harnessOptions{stores: 3, outputs: 2, meta: meta}, func(r *harness) {
		r.ctl.end()
		c := r.fill(scale.Size{Queues: *scaleFlag, Extents: 10})
		empty, began, used := living(), time.Now(), processor()
		r.ctl = r.startController(beside)
		r.eventually("all extents are known", time.Minute, func() bool { return r.ctl.loaded() == nil })
		t.Logf("%d extents are known after %s, %s of processor; %d MiB", len(c.Extents), time.Since(began), processor()-used, (living()-empty)>>20)
		const minutes, last = 12, 9 // a full reading of all rows is in the eleventh
		for minute := range minutes {
			before, rows := processor(), meta.n.Load()
			r.sleep(time.Minute)
			rows = meta.n.Load() - rows
			t.Logf("minute %2d: %s of processor, %d rows; %d MiB", minute+1, processor()-before, rows, (living()-empty)>>20)
			if most := int64(len(c.Queues)/2 + 1100); minute == last && rows > most {
				t.Errorf("an idle controller of %d queues reads %d rows a minute, want at most %d", len(c.Queues), rows, most)
			}
		}
		if n := r.ctl.extents.Count(); n != len(c.Extents) {
			t.Errorf("%d extents are known, want %d", n, len(c.Extents))
		}
	})
}

// mostIdle is how much of a processor an idle controller may use.
const mostIdle = 0.02

// TestScale_OnCassandra is TestScale_Idle in real time, with the metadata in Cassandra. The figures are of the whole
// process: the fakes of stores and output hosts are in them.
//
//	test/cassandra/cassandra.sh with DIR 1 go test ./controller -run TestScale_OnCassandra -v -timeout 2h -scale 10000 -cassandra URL
func TestScale_OnCassandra(t *testing.T) {
	if *cassandraFlag == "" {
		t.Skip("for measurements only; set -cassandra to a URL")
	}
	cfg, err := cassandra.ParseURL(*cassandraFlag)
	if err != nil {
		t.Fatal(err)
	}
	if err := cassandra.Apply(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	store, err := cassandra.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	meta := &rowsRead{Store: store}
	r := newHarness(t, harnessOptions{stores: 3, outputs: 2, real: true})
	defer r.stop()
	r.ctl.end()
	began := time.Now()
	c := r.load(store, scale.Size{Queues: *scaleFlag, Extents: 10})
	r.use(meta)
	t.Logf("%d queues are there after %s", len(c.Queues), time.Since(began).Round(time.Second))

	empty, began, used := living(), time.Now(), processor()
	r.ctl = r.startController(beside)
	r.eventually("all extents are known", time.Hour, func() bool { return r.ctl.loaded() == nil })
	t.Logf("%d extents are known after %s, %s of processor; %d MiB", len(c.Extents), time.Since(began), processor()-used, (living()-empty)>>20)
	const minutes = 14 // all rows are read again and again for ten minutes
	for minute := range minutes {
		before, read := processor(), meta.n.Load()
		r.sleep(time.Minute)
		spent := processor() - before
		t.Logf("minute %2d: %s of processor, %d rows; %d MiB", minute+1, spent, meta.n.Load()-read, (living()-empty)>>20)
		if share := spent.Minutes(); minute == minutes-1 && share > mostIdle {
			t.Errorf("an idle controller uses %.1f%% of a processor, want at most %.1f%%", 100*share, 100*mostIdle)
		}
	}
}

// load is fill for Cassandra, which takes rows that are there already many times faster.
func (r *harness) load(to *cassandra.Store, size scale.Size) scale.Cluster {
	r.t.Helper()
	rows, err := pebble.Open(r.t.TempDir(), 0, nil)
	r.ok(err)
	defer rows.Close()
	r.use(rows)
	c := r.fill(size)
	var all []metadata.Stored
	r.ok(rows.Stored(r.t.Context(), "", "", "", func(row metadata.Stored) error {
		all = append(all, row)
		return nil
	}))
	var loads errgroup.Group
	loads.SetLimit(4)
	for _, part := range to.Parts(all) {
		loads.Go(func() (err error) {
			for range 10 { // the node may be busy
				if err = to.Load(r.t.Context(), part); err == nil {
					break
				}
				r.sleep(5 * time.Second)
			}
			return err
		})
	}
	r.ok(loads.Wait())
	return c
}

// fill has the metadata and the stores hold a cluster whose hosts are those of the harness.
func (r *harness) fill(size scale.Size) scale.Cluster {
	r.t.Helper()
	hosts := scale.Hosts{
		Controller: r.self.ID, Run: r.self.Run, Input: r.input.ID, InputRun: r.input.Run, Checksum: sumOf([][]byte{batch(1, "x", 0)}),
		Owner: func(_ core.GroupID, e core.ExtentID) (core.HostID, core.RunID) {
			o := r.outputs[int(e.ID[15])%len(r.outputs)]
			return o.id, o.run
		},
	}
	for _, s := range r.stores {
		hosts.Stores = append(hosts.Stores, core.Place{Store: s.id, Disk: s.disk})
	}
	c, err := scale.Write(r.t.Context(), r.meta, size, hosts, time.Now())
	r.ok(err)
	for _, e := range c.Extents {
		for _, s := range r.stores {
			s.keep(e, c.Open[e.ID])
		}
	}
	for _, s := range r.stores { // in the time of computing digests anew the figures would be those of the fakes
		s.still = true
	}
	return c
}

// keep is what a store has of an extent that a writer wrote to, and that was sealed unless it is open.
func (s *fakeStore) keep(e core.Extent, open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := &fakeReplica{tuple: e, opened: true, header: s.run}
	if x.batches = [][]byte{batch(1, "x", 0)}; !open {
		x.fenced, x.sealed, x.l, x.committed, x.version = true, true, 1, 1, 1
	}
	s.replicas[e.ID] = x
	s.changed(x)
}

// GetTails tells how far replicas go. A store that cannot tell has a controller ask the others each time.
func (s *fakeStore) GetTails(_ context.Context, req *connect.Request[pb.GetTailsRequest]) (*connect.Response[pb.GetTailsResponse], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &pb.GetTailsResponse{Tails: make([]*pb.GetTailsResponse_Tail, len(req.Msg.Extents))}
	for i, id := range req.Msg.Extents {
		x := s.replicas[core.ExtentID{ID: core.ID(id)}]
		if x == nil {
			out.Tails[i] = &pb.GetTailsResponse_Tail{Absent: true}
			continue
		}
		out.Tails[i] = &pb.GetTailsResponse_Tail{Committed: uint64(x.committed), Last: uint64(x.last()), Damaged: x.wrong}
	}
	return connect.NewResponse(out), nil
}

// digestsLocked are those of all replicas. They are not computed anew while a store that is still has changed nothing.
func (s *fakeStore) digestsLocked() []uint64 {
	if s.still && s.digests.position == s.position {
		return s.digests.all
	}
	all := make([]uint64, core.InventoryBuckets)
	for id, x := range s.replicas {
		all[core.InventoryBucket(id)] ^= digestOf(id, x.proto())
	}
	s.digests.all, s.digests.position = all, s.position
	return all
}

// living is how many bytes of the heap are in use.
func living() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// processor is how much of it this process has used.
func processor() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Round(time.Millisecond)
}
