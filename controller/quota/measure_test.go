package quota

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// patience is how long an input host waits for leases.
const patience = 2 * time.Second

// slow is a store that takes 2 ms for a call, and for the rows of some partitions never answers, or fails at once.
type slow struct {
	metadata.Store
	calls, atOnce, most atomic.Int64
	busy                atomic.Int64 // ns in which a call was under way
	mu                  struct {
		sync.Mutex
		began time.Time
		hang  func(t metadata.Table, partition, row string) bool
		fail  func(t metadata.Table, partition, row string) bool
	}
}

func (s *slow) call(ctx context.Context, t metadata.Table, partition, row string) error {
	s.calls.Add(1)
	s.mu.Lock()
	if s.atOnce.Add(1) == 1 {
		s.mu.began = time.Now()
	}
	s.most.Store(max(s.most.Load(), s.atOnce.Load()))
	hang, fail := s.mu.hang != nil && s.mu.hang(t, partition, row), s.mu.fail != nil && s.mu.fail(t, partition, row)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.atOnce.Add(-1) == 0 {
			s.busy.Add(int64(time.Since(s.mu.began)))
		}
	}()
	takes := 2 * time.Millisecond
	if hang {
		takes = 3 * time.Second // by when a Cassandra node gives up
	}
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return core.Errorf(core.CodeUnavailable, "late: %w", context.Cause(ctx))
	}
	if hang || fail {
		return core.Errorf(core.CodeUnavailable, "the replicas of %s %s are away", t.Name, partition)
	}
	return nil
}

func (s *slow) List(ctx context.Context, t metadata.Table, p, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	if err := s.call(ctx, t, p, ""); err != nil {
		return nil, false, err
	}
	return s.Store.List(ctx, t, p, after, limit, c)
}

func (s *slow) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	if err := s.call(ctx, t, k.Partition, k.Row); err != nil {
		return metadata.Row{}, err
	}
	return s.Store.Get(ctx, t, k, c)
}

// GetRows reads 16 rows side by side, as that of Cassandra does.
func (s *slow) GetRows(ctx context.Context, t metadata.Table, keys []metadata.Key, c metadata.Consistency) ([]metadata.Row, error) {
	for i := 0; i < len(keys); i += 16 {
		for _, k := range keys[i:min(i+16, len(keys))] {
			s.mu.Lock()
			bad := s.mu.hang != nil && s.mu.hang(t, k.Partition, k.Row) || s.mu.fail != nil && s.mu.fail(t, k.Partition, k.Row)
			s.mu.Unlock()
			if bad {
				return nil, s.call(ctx, t, k.Partition, k.Row)
			}
		}
		if err := s.call(ctx, t, keys[i].Partition, ""); err != nil {
			return nil, err
		}
	}
	return metadata.GetRows(ctx, s.Store, t, keys, c)
}

// live is a keeper that measures in the background, in virtual time, over a slow store.
func live(t *testing.T, f func(r *harness, s *slow)) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{Store: memory.New()}
		r := newHarnessOver(t, s, time.Now)
		r.Keeper.Alone = false
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { r.Run(ctx) })
		defer wg.Wait()
		defer stop()
		f(r, s)
	})
}

// big makes a namespace with a backlog limit and many queues, each with a group and an open extent.
func (r *harness) big(name string, limit int64, n int) (queues []core.QueueID) {
	r.namespace(core.NamespaceSpec{Name: name, BacklogBytes: limit})
	for i := range n {
		q := r.queue(fmt.Sprintf("%s/q%d", name, i), 0)
		r.group(q, "g")
		r.extent(q, 0, 0)
		queues = append(queues, q)
	}
	return queues
}

// asks asks for leases as a host does once a second, and answers what the last answer was and how long the slowest
// took.
func (r *harness) asks(times int, req func() *pb.LeaseQuotaRequest) (out *pb.LeaseQuotaResponse, slowest time.Duration) {
	r.t.Helper()
	id := run(1).ID
	for range times {
		ctx, cancel := context.WithTimeout(r.t.Context(), patience)
		q := req()
		q.Run = id[:]
		began := time.Now()
		var err error
		if out, err = r.Lease(ctx, q); err != nil {
			r.t.Fatalf("after %s: %v", time.Since(began), err)
		}
		if len(q.Namespaces) != len(out.Namespaces) {
			r.t.Fatalf("%d leases of %d namespaces", len(out.Namespaces), len(q.Namespaces))
		}
		slowest = max(slowest, time.Since(began))
		cancel()
		time.Sleep(time.Second)
	}
	return out, slowest
}

// TestLease_OfANamespaceWithManyQueues: the answer does not wait for the backlogs of the queues, another namespace in
// the question gets its lease, the room comes soon, and measuring takes a tenth of the time.
func TestLease_OfANamespaceWithManyQueues(t *testing.T) {
	for _, n := range []int{1, 250} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			live(t, func(r *harness, s *slow) {
				r.namespace(core.NamespaceSpec{Name: "/other", MessagesPerSecond: 1000})
				one := r.big("/big", 1<<30, n)[0]
				ask := func() *pb.LeaseQuotaRequest {
					f := fillOf(one, 0)
					f.Need = 1e9
					return &pb.LeaseQuotaRequest{Queues: []*pb.QueueFill{f}, Namespaces: []*pb.NamespaceNeed{{Namespace: "/other", Messages: 10}}}
				}
				began := time.Now()
				for {
					out, slowest := r.asks(1, ask)
					if slowest > 100*time.Millisecond {
						t.Fatalf("an answer took %s", slowest)
					}
					if len(out.Queues) == 1 && out.Queues[0].Room == 1<<30 {
						break
					}
					if time.Since(began) > 30*time.Second {
						t.Fatalf("after %s the host got %v", time.Since(began), out.Queues)
					}
				}
				t.Logf("room after %s", time.Since(began))
				const length = 30 * time.Second
				s.calls.Store(0)
				s.busy.Store(0)
				out, _ := r.asks(int(length/time.Second), ask)
				if out.Queues[0].Room != 1<<30 {
					t.Errorf("at last the host got %v", out.Queues)
				}
				busy := time.Duration(s.busy.Load())
				t.Logf("%d calls in %s, %s with calls under way, up to %d side by side", s.calls.Load(), length, busy, s.most.Load())
				if busy > length/10 {
					t.Errorf("calls were under way for %s of %s", busy, length)
				}
			})
		})
	}
}

// TestLease_RowsOfOneNamespaceHang: its publishers keep the room that they have. The others get theirs.
func TestLease_RowsOfOneNamespaceHang(t *testing.T) {
	for name, table := range map[string]metadata.Table{"groups": metadata.Groups, "extents": metadata.Extents, "queues": metadata.Queues, "namespaces": metadata.Namespaces} {
		t.Run(name, func(t *testing.T) {
			live(t, func(r *harness, s *slow) {
				r.namespace(core.NamespaceSpec{Name: "/other", MessagesPerSecond: 1000})
				sick, well := r.big("/sick", 1<<30, 30), r.big("/well", 1<<30, 30)
				bad := sick[0].String()
				s.mu.hang = func(x metadata.Table, partition, row string) bool {
					return x == table && (partition == bad || row == bad || row == "/sick")
				}
				ask := func() *pb.LeaseQuotaRequest {
					fills := []*pb.QueueFill{fillOf(sick[0], 0), fillOf(well[0], 0)}
					fills[0].Held, fills[0].Need, fills[1].Need = 500, 1e9, 1e9
					return &pb.LeaseQuotaRequest{Queues: fills, Namespaces: []*pb.NamespaceNeed{{Namespace: "/other", Messages: 10}}}
				}
				out, slowest := r.asks(20, ask)
				if slowest > readFor+100*time.Millisecond {
					t.Errorf("an answer took %s", slowest)
				}
				rooms := make(map[string]int64)
				for _, l := range out.Queues {
					rooms[string(l.Queue)] = l.Room
				}
				if got := rooms[string(well[0].ID[:])]; got != 1<<30 {
					t.Errorf("room for %d in the other namespace", got)
				}
				if got, there := rooms[string(sick[0].ID[:])]; there && got != 500 {
					t.Errorf("room for %d where the backlog is not known, want the 500 of before", got)
				}
				s.mu.Lock()
				s.mu.hang = nil
				s.mu.Unlock()
				r.asks(int(failedPace/time.Second)+5, ask)
				out, _ = r.asks(1, ask)
				if len(out.Queues) != 2 || out.Queues[0].Room != 1<<30 {
					t.Errorf("the host got %v when all answers again", out.Queues)
				}
			})
		})
	}
}

// TestLease_NoRowCanBeRead: the host is told so, as it is when no controller answers.
func TestLease_NoRowCanBeRead(t *testing.T) {
	live(t, func(r *harness, s *slow) {
		q := r.big("/big", 1<<30, 1)[0]
		s.mu.hang = func(metadata.Table, string, string) bool { return true }
		id := run(1).ID
		began := time.Now()
		_, err := r.Lease(r.t.Context(), &pb.LeaseQuotaRequest{Run: id[:], Queues: []*pb.QueueFill{fillOf(q, 0)}, Namespaces: []*pb.NamespaceNeed{{Namespace: "/big"}}})
		if core.CodeOf(err) != core.CodeUnavailable || time.Since(began) > 2*readFor {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

// TestLease_BacklogsThatCannotBeMeasured: the last results count for a while. Then hosts keep the room that they have.
func TestLease_BacklogsThatCannotBeMeasured(t *testing.T) {
	live(t, func(r *harness, s *slow) {
		queues := r.big("/big", 1<<30, 60)
		capped := r.queue("/free/q", 1<<20)
		ask := func() *pb.LeaseQuotaRequest {
			fills := []*pb.QueueFill{fillOf(queues[0], 0), fillOf(capped, 0)}
			for _, f := range fills {
				f.Held, f.Need = 500, 1e9
			}
			return &pb.LeaseQuotaRequest{Queues: fills}
		}
		rooms := func() (int64, int64) {
			out, _ := r.asks(1, ask)
			for range out.Queues { // the namespaces are in no order
				if string(out.Queues[0].Queue) == string(queues[0].ID[:]) {
					return out.Queues[0].Room, out.Queues[1].Room
				}
				out.Queues[0], out.Queues[1] = out.Queues[1], out.Queues[0]
			}
			return 0, 0
		}
		r.asks(10, ask)
		if a, b := rooms(); a != 1<<30 || b != 1<<20 {
			t.Fatalf("room for %d and %d", a, b)
		}
		s.mu.Lock()
		s.mu.fail = func(x metadata.Table, _, _ string) bool { return x == metadata.Extents }
		s.mu.Unlock()
		r.asks(2, ask)
		if a, b := rooms(); a != 1<<30 || b != 1<<20 {
			t.Errorf("room for %d and %d by the last results", a, b)
		}
		r.asks(int(leastHold/time.Second), ask)
		s.calls.Store(0)
		r.asks(60, ask)
		if a, b := rooms(); a != 500 || b != 500 {
			t.Errorf("room for %d and %d after a minute without results, want the 500 of before", a, b)
		}
		if n := s.calls.Load(); n > 60*2*(mostFailures+atOnce+4) {
			t.Errorf("%d calls in a minute in which they fail", n)
		}
		s.mu.Lock()
		s.mu.fail = nil
		s.mu.Unlock()
		r.asks(10, ask)
		if a, b := rooms(); a != 1<<30 || b != 1<<20 {
			t.Errorf("room for %d and %d when they can be measured again", a, b)
		}
	})
}

// TestLease_ExtentsThatEndBetweenMeasurements count by what the host said of them, until they are measured.
func TestLease_ExtentsThatEndBetweenMeasurements(t *testing.T) {
	r := newHarness(t)
	r.namespace(core.NamespaceSpec{Name: "/acme", BacklogBytes: 100_000})
	q := r.queue("/acme/q", 50_000)
	r.group(q, "g")
	first := r.extent(q, 0, 0)
	told := func(e core.ExtentID, bytes uint64) *pb.ExtentFill {
		return &pb.ExtentFill{Extent: e.ID[:], Last: bytes, Bytes: bytes}
	}
	if got := r.room(run(1), fillOf(q, 0, told(first, 10_000)))[0]; got != 40_000 {
		t.Fatalf("room for %d", got)
	}
	// It ends with 15,000, and another one is begun. Neither was measured so.
	second := r.extent(q, 0, 0)
	fill := fillOf(q, 0, told(first, 15_000), told(second, 1000))
	if got := r.room(run(1), fill)[0]; got != 34_000 {
		t.Errorf("room for %d, want 34000", got)
	}
	r.extents.Change(first, func(e *catalog.Extent) { e.State, e.L, e.Bytes = core.ExtentSealed, 15_000, 15_000 })
	if got := r.room(run(1), fill)[0]; got != 34_000 {
		t.Errorf("room for %d when one has ended, want 34000", got)
	}
	r.now = r.now.Add(2 * time.Second)
	for range 2 {
		if got := r.room(run(1), fill)[0]; got != 34_000 {
			t.Errorf("room for %d when that was measured, want 34000", got)
		}
	}
}

// TestLease_NewQueueThatIsNotPublishedToAnyMore counts, also while the list of the queues of its namespace is older.
func TestLease_NewQueueThatIsNotPublishedToAnyMore(t *testing.T) {
	r := newHarness(t)
	r.namespace(core.NamespaceSpec{Name: "/acme", BacklogBytes: 100_000})
	old := r.queue("/acme/old", 0)
	r.room(run(1), fillOf(old, 0))
	b := r.mu.namespaces["/acme"]
	b.others.pace, b.others.next = time.Minute, r.now.Add(time.Minute) // it has many queues
	fresh := r.queue("/acme/fresh", 0)
	r.extent(fresh, 100, 30_000)
	r.room(run(1), fillOf(fresh, 0))
	for range 3 {
		r.now = r.now.Add(askedFor)
		if got := r.room(run(1), fillOf(old, 0))[0]; got != 70_000 {
			t.Errorf("room for %d, want 70000", got)
		}
	}
}

// TestLease_ResultsOfBeforeAnotherControllerWas do not count: extents began and ended meanwhile.
func TestLease_ResultsOfBeforeAnotherControllerWas(t *testing.T) {
	live(t, func(r *harness, s *slow) {
		queues := r.big("/big", 1<<30, 100)
		ask := func() *pb.LeaseQuotaRequest {
			f := fillOf(queues[0], 0)
			f.Held, f.Need = 500, 1e9
			return &pb.LeaseQuotaRequest{Queues: []*pb.QueueFill{f}}
		}
		r.asks(5, ask)
		if out, _ := r.asks(1, ask); out.Queues[0].Room != 1<<30 {
			t.Fatalf("leased %v", out.Queues)
		}
		r.duties.handovers.Add(1)
		if out, _ := r.asks(1, ask); out.Queues[0].Room != 500 {
			t.Errorf("leased %v, want the 500 of before", out.Queues)
		}
		r.asks(5, ask)
		if out, _ := r.asks(1, ask); out.Queues[0].Room != 1<<30 {
			t.Errorf("leased %v", out.Queues)
		}
	})
}
