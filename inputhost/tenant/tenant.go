// Package tenant owns the publish limits at one input host: the parts of the limits of namespaces and of capped queues
// that the controller leases to it.
package tenant

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/quota"
	"github.com/columbamq/columba/metadata"
)

// Deps are what the tenants stand on.
type Deps struct {
	Log   *slog.Logger
	Meta  metadata.Store
	Now   func() time.Time
	Hosts func() int // input hosts that there are
	// Order names the order in which controllers are asked about a key. Keys of the same order can be asked about in one
	// call.
	Order func(key core.ID) string
	// Lease asks the controllers, in the order of a key, until one answers that divides some of what is asked for.
	Lease func(ctx context.Context, key core.ID, req *pb.LeaseQuotaRequest) (*pb.LeaseQuotaResponse, error)
}

// tenant is one namespace. The loop owns the fields that are not atomic.
type tenant struct {
	name     string
	limits   atomic.Pointer[core.NamespaceSpec] // nil: none
	messages quota.Bucket
	bytes    quota.Bucket
	wanted   struct {
		messages, bytes atomic.Int64 // since they were last told
		refused         atomic.Bool
	}
	known   chan struct{} // closed when the limits were read for the first time
	users   int           // gates; the mutex of all
	sought  time.Time     // by Know or Open, last; the same
	granted struct{ messages, bytes float64 }
	hosts   int
	until   time.Time // the lease's end
}

// Tenants are the namespaces that are published to here.
//
//	no record, no limits ── a record ──▶ limited: a small part until the first lease ──▶ leased ──not renewed in time──▶ a small part
type Tenants struct {
	deps    Deps
	wake    chan struct{} // capacity 1
	changed atomic.Bool   // records are to be read
	hosts   atomic.Int64  // input hosts, as of the last look
	asked   time.Time     // the last question to the controller; the loop's
	failed  bool          // it was not answered; the loop's
	mu      struct {
		sync.Mutex
		byName map[string]*tenant
		gates  map[*Gate]struct{}
	}
}

// New makes them; Run keeps them.
func New(deps Deps) *Tenants {
	t := &Tenants{deps: deps, wake: make(chan struct{}, 1)}
	t.mu.byName = make(map[string]*tenant)
	t.mu.gates = make(map[*Gate]struct{})
	return t
}

// Open makes the gate of a queue. fills is asked for what it has that is not sealed; nil: its backlog has no limit.
func (t *Tenants) Open(path string, queue core.QueueID, cap int64, fills func() []Fill) *Gate {
	g := &Gate{all: t, queue: queue, path: path, fills: fills}
	g.cap.Store(cap)
	t.mu.Lock()
	g.tenant = t.tenantLocked(core.Namespace(path))
	g.tenant.users++
	t.mu.gates[g] = struct{}{}
	t.mu.Unlock()
	if g.backlogged() {
		g.room.Set(t.alone(g.least()), 0)
	}
	if cap > 0 || g.tenant.limits.Load() != nil {
		t.again()
	}
	return g
}

// Know waits until the limits of a namespace are read; then what is published to it is held to them.
func (t *Tenants) Know(ctx context.Context, namespace string) error {
	t.mu.Lock()
	n := t.tenantLocked(namespace)
	t.mu.Unlock()
	select {
	case <-n.known:
		return nil
	default:
	}
	t.look()
	t.again()
	select {
	case <-n.known:
		return nil
	case <-ctx.Done():
		return core.Errorf(core.CodeUnavailable, "the limits of namespace %s could not be read: %w", namespace, context.Cause(ctx))
	}
}

// look takes over how many input hosts there are.
func (t *Tenants) look() int {
	n := t.deps.Hosts()
	t.hosts.Store(int64(n))
	return n
}

// alone is the room of a backlog that the controller has not said anything of.
func (t *Tenants) alone(most int64) int64 {
	return int64(quota.Alone(float64(most), int(t.hosts.Load())))
}

func (t *Tenants) tenantLocked(name string) *tenant {
	n := t.mu.byName[name]
	if n == nil {
		n = &tenant{name: name, known: make(chan struct{})}
		t.mu.byName[name] = n
	}
	n.sought = t.deps.Now()
	return n
}

func (t *Tenants) close(g *Gate) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, open := t.mu.gates[g]; open {
		delete(t.mu.gates, g)
		g.tenant.users--
	}
}

func (t *Tenants) again() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// list copies the tenants and the gates.
func (t *Tenants) list() (tenants []*tenant, gates []*Gate) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range t.mu.byName {
		tenants = append(tenants, n)
	}
	for g := range t.mu.gates {
		gates = append(gates, g)
	}
	return tenants, gates
}

// forgetAfter is how long a namespace stays known that nobody publishes to: who has just asked for it is about to.
const forgetAfter = time.Minute

// forget drops the tenants that nobody uses.
func (t *Tenants) forget(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, n := range t.mu.byName {
		if n.users == 0 && now.Sub(n.sought) > forgetAfter {
			delete(t.mu.byName, name)
		}
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
