package controller

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/membership/static"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// harness is a controller between fakes of stores and of output hosts, on an in-memory network in virtual time, or in
// real time where real metadata need it.
type harness struct {
	t       *testing.T
	real    bool
	meta    metadata.Store // of the test's goroutine
	stores  []*fakeStore
	outputs []*fakeOutput
	self    membership.Host
	input   membership.Host
	members *static.Monitor
	further []*static.Monitor // of further controllers
	cut     *refusing         // the metadata of the second controller, see two
	ctl     *running
	config  func(*Config) // of controllers of two
	log     logText       // of the controller
	wg      sync.WaitGroup
	mu      struct {
		sync.Mutex
		members map[core.HostID]membership.Host
		serving map[string]*servedHost
		ahead   map[string]time.Duration   // clocks that are, by address
		runs    map[string]membership.Host // that joined last, by address
		meta    metadata.Store             // that stores' questions are answered from
	}
}

// running is one run of the controller.
type running struct {
	*Host
	pool   *peer.Pool
	cancel context.CancelFunc
	ran    chan struct{}
}

type harnessOptions struct {
	stores, outputs int
	zones           []string // of the stores
	edit            func(*Config)
	meta            metadata.Store // of the first controller, and of the test; nil: new ones
	real            bool           // in real time
}

// seldom is for tests of many minutes, in which stores come and go by membership only. Each description is a call.
func seldom(c *Config) { c.DescribeEvery = 20 * time.Second }

// bubble runs f with a harness.
func bubble(t *testing.T, o harnessOptions, f func(r *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newHarness(t, o)
		defer r.stop()
		f(r)
	})
}

func newRun() core.RunID { return core.RunID{ID: core.NewID(time.Now())} }

func newHarness(t *testing.T, o harnessOptions) *harness {
	r := &harness{t: t, real: o.real}
	if r.use(o.meta); o.meta == nil {
		r.use(memory.New())
	}
	r.mu.members = make(map[core.HostID]membership.Host)
	r.mu.runs = make(map[string]membership.Host)
	r.mu.serving, r.mu.ahead = make(map[string]*servedHost), make(map[string]time.Duration)
	r.self = membership.Host{ID: "ctl", Roles: []string{"controller"}, Address: "ctl:1", Run: newRun()}
	r.input = membership.Host{ID: "in", Roles: []string{"inputhost"}, Address: "in:1", Run: newRun()}
	var err error
	if r.members, err = static.New(r.self); err != nil {
		t.Fatal(err)
	}
	r.serve("in:1", http.NotFoundHandler())
	r.join(r.self, r.input)
	for i := range o.stores {
		s := &fakeStore{
			r: r, id: core.HostID(fmt.Sprintf("s%d", i)), free: 90, disk: core.DiskID{ID: core.NewID(time.Now())}, run: newRun(),
			replicas: make(map[core.ExtentID]*fakeReplica), removed: make(map[core.ExtentID]removal), calls: make(map[string]int),
		}
		r.stores = append(r.stores, s)
		zone := ""
		if i < len(o.zones) {
			zone = o.zones[i]
		}
		r.up(s)
		r.join(membership.Host{ID: s.id, Roles: []string{"storehost"}, Address: string(s.id) + ":1", Run: s.run, Zone: zone})
	}
	for i := range o.outputs {
		out := &fakeOutput{id: core.HostID(fmt.Sprintf("o%d", i)), run: newRun()}
		r.outputs = append(r.outputs, out)
		r.upOutput(out)
		r.join(membership.Host{ID: out.id, Roles: []string{"outputhost"}, Address: string(out.id) + ":1", Run: out.run})
	}
	r.ctl = r.startController(o.edit)
	return r
}

// use has controllers that start from now on, and stores' questions, meet other metadata.
func (r *harness) use(meta metadata.Store) {
	r.meta = meta
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.meta = meta
}

// asked is a controller that stores have confirm what they drop. It knows no more than the metadata say. Stores call it
// at any time.
func (r *harness) asked() *service {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &service{&Host{cfg: DefaultConfig(), deps: Deps{Meta: r.mu.meta}, duties: alone{}}}
}

func (r *harness) startController(edit func(*Config)) *running { return r.startAs(r.members, edit) }

// startAs starts a controller that sees a membership. It has no others beside it, unless edit says so.
func (r *harness) startAs(members *static.Monitor, edit func(*Config)) *running {
	cfg := DefaultConfig()
	cfg.Alone = true
	if edit != nil {
		edit(&cfg)
	}
	c := &running{pool: peer.NewPool(peer.Config{NetDial: r.dial, Log: slog.New(slog.DiscardHandler)}), ran: make(chan struct{})}
	var err error
	c.Host, err = New(cfg, Deps{
		Log: slog.New(slog.NewTextHandler(io.MultiWriter(r.t.Output(), &r.log), nil)), Metrics: prometheus.NewRegistry(), Meta: r.meta, Peers: c.pool, Members: members,
	})
	r.ok(err)
	r.ok(c.Start(r.t.Context()))
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	r.wg.Go(func() {
		defer close(c.ran)
		if err := c.Run(ctx); err != nil {
			r.t.Errorf("run: %v", err)
		}
	})
	r.settle()
	return c
}

// settle waits, in virtual time, until nothing more happens before time passes.
func (r *harness) settle() {
	if !r.real {
		synctest.Wait()
	}
}

func (c *running) end() {
	c.cancel()
	<-c.ran
	c.Stop(context.Background())
	c.pool.Close()
}

func (r *harness) stop() {
	for _, s := range r.stores {
		r.wake(s)
	}
	if r.ctl != nil {
		r.ctl.end()
	}
	r.mu.Lock()
	all := r.mu.serving
	r.mu.serving = nil
	r.mu.Unlock()
	for _, s := range all {
		s.server.Close()
	}
	r.wg.Wait()
	r.meta.Close()
}

func (r *harness) ok(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *harness) sleep(d time.Duration) {
	time.Sleep(d)
	r.settle()
}

// eventually waits, in virtual time, and answers how long it took.
func (r *harness) eventually(what string, most time.Duration, f func() bool) time.Duration {
	r.t.Helper()
	began := time.Now()
	for !f() {
		if time.Since(began) > most {
			r.t.Fatalf("not after %s: %s", most, what)
		}
		r.sleep(min(max(most/1000, time.Millisecond), time.Second))
	}
	return time.Since(began)
}

// queue makes a queue.
func (r *harness) queue(replicas, least int) core.QueueID {
	id := core.QueueID{ID: core.NewID(time.Now())}
	spec := core.QueueSpec{Path: "/t/" + id.String(), Replicas: replicas, MinReplicas: least}.WithDefaults(replicas, least)
	r.ok(metadata.Create(r.t.Context(), r.meta, metadata.Queues, metadata.QueueKey(id), metadata.QueueRecord{ID: id, Spec: spec}))
	return id
}

// group makes a started group.
func (r *harness) group(queue core.QueueID, name string) core.GroupID {
	id := core.GroupID{ID: core.NewID(time.Now())}
	g := metadata.GroupRecord{ID: id, Queue: queue, Started: true, Spec: core.GroupSpec{Name: name, Status: core.StatusEnabled}}
	r.ok(metadata.Create(r.t.Context(), r.meta, metadata.Groups, metadata.GroupKey(queue, name), g))
	r.ctl.shares.touch(queue)
	return id
}

func (r *harness) wish(queue core.QueueID) wish {
	return wish{queue: queue, input: r.input.ID, run: r.input.Run, kind: core.KindLog}
}

// extent makes one with so many records on every replica.
func (r *harness) extent(queue core.QueueID, records int) core.Extent {
	r.t.Helper()
	e, err := r.ctl.ensureExtent(r.t.Context(), r.wish(queue))
	r.ok(err)
	for _, s := range r.replicas(e) {
		s.write(e, numbers(1, records)...)
	}
	return e
}

func numbers(first, last int) (out []string) {
	for i := first; i <= last; i++ {
		out = append(out, fmt.Sprint(i))
	}
	return out
}

func (r *harness) store(id core.HostID) *fakeStore {
	return r.stores[slices.IndexFunc(r.stores, func(s *fakeStore) bool { return s.id == id })]
}

func (r *harness) replicas(e core.Extent) (out []*fakeStore) {
	for _, id := range e.Replicas {
		out = append(out, r.store(id))
	}
	return out
}

// others are the stores that are not among an extent's replicas.
func (r *harness) others(e core.Extent) (out []*fakeStore) {
	for _, s := range r.stores {
		if !slices.Contains(e.Replicas, s.id) {
			out = append(out, s)
		}
	}
	return out
}

// seal asks for the end of an extent as its writer does.
func (r *harness) seal(e core.Extent, floor core.Seq) (*pb.SealExtentResponse, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), 5*time.Second)
	defer cancel()
	resp, err := (&service{r.ctl.Host}).SealExtent(ctx, connect.NewRequest(&pb.SealExtentRequest{Extent: convert.ExtentToProto(e), Floor: uint64(floor), Reason: "test"}))
	if err != nil {
		return nil, convert.FromRPC(err)
	}
	return resp.Msg, nil
}

// row is the seal row of an extent; zero when there is none.
func (r *harness) row(e core.Extent) metadata.SealRecord {
	r.t.Helper()
	row, _, err := metadata.Read[metadata.SealRecord](r.t.Context(), r.meta, metadata.Seals, metadata.SealKey(e.ID), metadata.Serial)
	if core.CodeOf(err) != core.CodeNotFound {
		r.ok(err)
	}
	return row
}

// whole checks that every holder has records 1 … l, sealed, and equal.
func (r *harness) whole(e core.Extent, l core.Seq, holders int) {
	r.t.Helper()
	row := r.row(e)
	if row.State != core.ExtentSealed || row.L != l || len(row.Holders) != holders || len(row.HolderDisks) != holders {
		r.t.Fatalf("row %+v, want the end %d on %d holders", row, l, holders)
	}
	for i, id := range row.Holders {
		s := r.store(id)
		x := s.has(e.ID)
		if x == nil || x.wrong || !x.sealed || x.l != l || x.last() != l || x.sum() != row.Checksum || row.HolderDisks[i] != s.disk {
			r.t.Fatalf("holder %s has %+v, the row says %+v", id, x, row)
		}
	}
}
