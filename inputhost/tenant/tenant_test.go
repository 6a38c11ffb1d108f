package tenant

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/quota"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// harness is the tenants of one host before metadata in memory and a controller that answers as the test says.
type harness struct {
	*Tenants
	t    *testing.T
	meta metadata.Store
	mu   struct {
		sync.Mutex
		order  func(core.ID) string // nil: there is one
		answer func(*pb.LeaseQuotaRequest) (*pb.LeaseQuotaResponse, error)
		asked  []*pb.LeaseQuotaRequest
	}
}

const space = "/acme"

func bubble(t *testing.T, f func(r *harness)) {
	synctest.Test(t, func(t *testing.T) {
		r := &harness{t: t, meta: memory.New()}
		defer r.meta.Close()
		r.Tenants = New(Deps{
			Log: slog.New(slog.DiscardHandler), Meta: r.meta, Now: time.Now, Hosts: func() int { return 2 },
			Order: func(key core.ID) string {
				r.mu.Lock()
				defer r.mu.Unlock()
				if r.mu.order == nil {
					return ""
				}
				return r.mu.order(key)
			},
			Lease: func(_ context.Context, _ core.ID, req *pb.LeaseQuotaRequest) (*pb.LeaseQuotaResponse, error) {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.mu.asked = append(r.mu.asked, req)
				if r.mu.answer == nil {
					return nil, errors.New("nobody is there")
				}
				return r.mu.answer(req)
			},
		})
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { r.Watch(ctx) })
		wg.Go(func() { r.Run(ctx) })
		defer wg.Wait()
		defer stop()
		f(r)
	})
}

func (r *harness) limit(spec core.NamespaceSpec) {
	r.t.Helper()
	spec.Name = space
	err := metadata.Create(context.Background(), r.meta, metadata.Namespaces, metadata.NamespaceKey(space), metadata.NamespaceRecord{Spec: spec})
	if core.CodeOf(err) == core.CodeExists {
		_, err = metadata.Change(context.Background(), r.meta, metadata.Namespaces, metadata.NamespaceKey(space), func(n *metadata.NamespaceRecord) error {
			n.Spec = spec
			return nil
		})
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *harness) gate(cap int64) *Gate {
	r.t.Helper()
	if err := r.Know(context.Background(), space); err != nil {
		r.t.Fatal(err)
	}
	return r.Open(space+"/q", core.QueueID{ID: core.NewID(time.Now())}, cap, func() []Fill { return nil })
}

func (r *harness) answers(f func(*pb.LeaseQuotaRequest) (*pb.LeaseQuotaResponse, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.answer = f
}

// all gives every namespace and every queue the same.
func all(messages, bytes float64, room int64) func(*pb.LeaseQuotaRequest) (*pb.LeaseQuotaResponse, error) {
	return func(req *pb.LeaseQuotaRequest) (*pb.LeaseQuotaResponse, error) {
		out := &pb.LeaseQuotaResponse{}
		for _, n := range req.Namespaces {
			out.Namespaces = append(out.Namespaces, &pb.NamespaceLease{Namespace: n.Namespace, Messages: messages, Bytes: bytes, Hosts: 2})
		}
		for _, q := range req.Queues {
			out.Queues = append(out.Queues, &pb.QueueLease{Queue: q.Queue, Room: room})
		}
		return out, nil
	}
}

// pass publishes as much as may pass for so long, in chunks, and answers how many messages did.
func pass(g *Gate, chunk, size int, length time.Duration) (passed int) {
	for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		n, bytes, _ := g.Ask(chunk, chunk*size, time.Now())
		n = min(n, bytes/size)
		if n > 0 {
			g.Charge(n, n*size, time.Now())
			passed += n
		}
	}
	return passed
}

func TestGate_WithoutLimitsAsksNobody(t *testing.T) {
	bubble(t, func(r *harness) {
		g := r.gate(0)
		defer g.Close()
		if n := pass(g, 1000, 100, time.Second); n < 90_000 {
			t.Errorf("%d messages passed, want all", n)
		}
		time.Sleep(time.Hour)
		if len(r.mu.asked) != 0 {
			t.Errorf("the controller was asked %d times", len(r.mu.asked))
		}
	})
}

func TestGate_KeepsTheLeasedRate(t *testing.T) {
	for name, c := range map[string]struct {
		spec core.NamespaceSpec
		over Limit
	}{
		"messages": {core.NamespaceSpec{MessagesPerSecond: 2000}, LimitMessages},
		"bytes":    {core.NamespaceSpec{BytesPerSecond: 200_000}, LimitBytes},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *harness) {
				r.limit(c.spec)
				r.answers(all(1000, 100_000, 0)) // half of it
				g := r.gate(0)
				defer g.Close()
				time.Sleep(100 * time.Millisecond)
				if n := pass(g, 500, 100, 10*time.Second); n < 9_500 || n > 11_600 {
					t.Errorf("%d messages of 100 bytes passed in 10 s, want 10,000 and what was saved up", n)
				}
				_, _, over := g.Ask(500, 50_000, time.Now())
				if over == nil || over.Limit != c.over || over.Why.Code != core.CodeThrottled {
					t.Errorf("over the limit says %+v", over)
				}
			})
		})
	}
}

// TestGate_FollowsTheRecord limits a namespace that is published to, changes the limit, and takes it away.
func TestGate_FollowsTheRecord(t *testing.T) {
	bubble(t, func(r *harness) {
		g := r.gate(0)
		defer g.Close()
		r.answers(all(100, 0, 0))
		r.limit(core.NamespaceSpec{MessagesPerSecond: 100})
		time.Sleep(2 * time.Second)
		if n := pass(g, 1000, 1, 5*time.Second); n > 700 {
			t.Errorf("%d messages passed in 5 s at 100 a second", n)
		}
		r.answers(all(1000, 0, 0))
		r.limit(core.NamespaceSpec{MessagesPerSecond: 1000})
		time.Sleep(2 * time.Second)
		if n := pass(g, 1000, 1, 5*time.Second); n < 4_500 || n > 6_500 {
			t.Errorf("%d messages passed in 5 s at 1000 a second", n)
		}
		r.limit(core.NamespaceSpec{})
		time.Sleep(2 * time.Second)
		if n := pass(g, 1000, 1, time.Second); n < 90_000 {
			t.Errorf("%d messages passed without a limit, want all", n)
		}
	})
}

// TestGate_CutOffHostKeepsToASmallPart takes the controller away: the lease goes on for its time, then a small part
// does, and never all.
func TestGate_CutOffHostKeepsToASmallPart(t *testing.T) {
	bubble(t, func(r *harness) {
		r.limit(core.NamespaceSpec{MessagesPerSecond: 1000, BacklogBytes: 1 << 20})
		g := r.gate(0)
		defer g.Close()
		if n := pass(g, 1000, 1, 10*time.Second); n < 400 || n > 700 { // 1000 / 2 hosts / 10
			t.Errorf("%d messages passed in 10 s before the controller said anything, want about 50 a second", n)
		}
		r.answers(all(800, 0, 100_000))
		time.Sleep(3 * time.Second)
		if n := pass(g, 1000, 1, 5*time.Second); n < 3_500 || n > 5_000 {
			t.Errorf("%d messages passed in 5 s at a leased 800 a second", n)
		}
		r.answers(nil)
		time.Sleep(quota.LeaseFor + 3*time.Second)
		if n := pass(g, 1000, 1, 20*time.Second); n < 800 || n > 1_200 {
			t.Errorf("%d messages passed in 20 s after the lease was over, want about 50 a second", n)
		}
		if left := g.room.Left(); left > 100_000 {
			t.Errorf("room for %d bytes, more than was said last", left)
		}
		r.answers(all(800, 0, 100_000))
		time.Sleep(3 * time.Second)
		if n := pass(g, 1000, 1, 5*time.Second); n < 3_500 {
			t.Errorf("%d messages passed in 5 s after the controller was back", n)
		}
	})
}

// TestGate_RoomOfABacklog takes what there is, also between the question and its answer.
func TestGate_RoomOfABacklog(t *testing.T) {
	bubble(t, func(r *harness) {
		const cap = 100_000
		var used atomic.Int64
		g := r.gate(cap)
		defer g.Close()
		take := func() {
			if n, bytes, _ := g.Ask(1, 1000, time.Now()); n == 1 && bytes == 1000 {
				g.Charge(1, 1000, time.Now())
				used.Add(1000)
			}
		}
		r.answers(func(req *pb.LeaseQuotaRequest) (*pb.LeaseQuotaResponse, error) {
			left := cap - used.Load()
			take() // after the question
			return all(0, 0, left)(req)
		})
		for range 3000 {
			take()
			time.Sleep(10 * time.Millisecond)
		}
		if n := used.Load(); n > cap || n < cap-2000 {
			t.Errorf("%d bytes were taken of %d", n, cap)
		}
		_, _, over := g.Ask(1, 1000, time.Now())
		if over == nil || over.Limit != LimitBacklog || over.Why.RetryAfter < time.Second {
			t.Errorf("a full backlog says %+v", over)
		}
	})
}

// TestTenants_Forget drops what nobody publishes to any more.
func TestTenants_Forget(t *testing.T) {
	bubble(t, func(r *harness) {
		r.limit(core.NamespaceSpec{MessagesPerSecond: 10})
		r.answers(all(10, 0, 0))
		g := r.gate(0)
		time.Sleep(5 * time.Minute)
		if tenants, _ := r.list(); len(tenants) != 1 {
			t.Errorf("%d namespaces are known, one is in use", len(tenants))
		}
		g.Close()
		g.Close()
		time.Sleep(5 * time.Minute)
		if tenants, gates := r.list(); len(tenants)+len(gates) != 0 {
			t.Errorf("%d namespaces and %d queues are known, none is in use", len(tenants), len(gates))
		}
		n := len(r.mu.asked)
		time.Sleep(time.Hour)
		if len(r.mu.asked) != n {
			t.Error("the controller is asked about what nobody uses")
		}
	})
}

func TestGate_AllocatesNothing(t *testing.T) {
	all := New(Deps{Now: time.Now, Hosts: func() int { return 1 }})
	g := all.Open("/acme/q", core.QueueID{}, 1<<40, func() []Fill { return nil })
	g.tenant.limits.Store(&core.NamespaceSpec{MessagesPerSecond: 1e9, BytesPerSecond: 1e12})
	now := time.Now()
	g.tenant.messages.Set(1e9, now)
	g.tenant.bytes.Set(1e12, now)
	g.room.Set(1<<40, 0)
	if n := testing.AllocsPerRun(100, func() {
		n, bytes, over := g.Ask(1, 1000, now)
		if over != nil {
			t.Fatal("it is over a limit")
		}
		g.Charge(n, bytes, now)
		g.Hold(1000)
		g.Settle(1000)
	}); n != 0 {
		t.Errorf("%g allocations for a message that passes", n)
	}
}

// BenchmarkGate is what limits cost each message, from all processors at once.
func BenchmarkGate(b *testing.B) {
	all := New(Deps{Now: time.Now, Hosts: func() int { return 1 }})
	for name, limits := range map[string]*core.NamespaceSpec{"none": nil, "all": {MessagesPerSecond: 1e12, BytesPerSecond: 1e15, BacklogBytes: 1 << 60}} {
		b.Run(name, func(b *testing.B) {
			g := all.Open("/acme/"+name, core.QueueID{}, 0, func() []Fill { return nil })
			g.tenant.limits.Store(limits)
			now := time.Now()
			g.tenant.messages.Set(1e12, now)
			g.tenant.bytes.Set(1e15, now)
			g.room.Set(1<<60, 0)
			b.ReportAllocs()
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					if n, bytes, over := g.Ask(1, 1000, now); over == nil {
						g.Charge(n, bytes, now)
					}
				}
			})
		})
	}
}

// TestGate_LargestRate: the sum of the two rates is no int64. The host has to ask for its part of both all the same.
func TestGate_LargestRate(t *testing.T) {
	bubble(t, func(r *harness) {
		r.answers(all(1e9, 1e9, 0))
		r.limit(core.NamespaceSpec{MessagesPerSecond: math.MaxInt64, BytesPerSecond: 1000})
		g := r.gate(0)
		defer g.Close()
		time.Sleep(2 * quota.RenewEvery)
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.mu.asked) == 0 {
			t.Error("the host asks for no part of the namespace's rates")
		}
	})
}
