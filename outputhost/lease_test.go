package outputhost

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/internal/netmem"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/membership/static"
	"github.com/columbamq/columba/outputhost/lease"
)

// leasedHarness is an output host with one share, between a controller and others, on an in-memory network in which an
// address answers, refuses, or is silent.
type leasedHarness struct {
	*harness
	g    *group
	ctl  *fakeController
	ctl2 *fakeController // of no list, and not there unless it is one of the others
	mu   struct {
		sync.Mutex
		silent, refused map[string]bool
		ends            map[string][]net.Conn
	}
	listeners map[string]*netmem.Listener
	skipped   atomic.Int64 // by the host's clock, in pauses of its process
}

// leaseBubble runs f with a host whose beat goes on. The others are at addresses like their ids.
func leaseBubble(t *testing.T, others []membership.Host, f func(t *testing.T, x *leasedHarness)) {
	synctest.Test(t, func(t *testing.T) { runLeased(t, others, f) })
}

func runLeased(t *testing.T, others []membership.Host, f func(t *testing.T, x *leasedHarness)) {
	b := newHarness(t)
	x := &leasedHarness{harness: b, ctl: &fakeController{id: "ctl"}, ctl2: &fakeController{id: "ctl2"}, listeners: make(map[string]*netmem.Listener)}
	x.mu.silent, x.mu.refused, x.mu.ends = make(map[string]bool), make(map[string]bool), make(map[string][]net.Conn)
	var running sync.WaitGroup
	var servers []*http.Server
	for _, c := range []*fakeController{x.ctl, x.ctl2} {
		mux := http.NewServeMux()
		mux.Handle(columbav1connect.NewControllerServiceHandler(c))
		server, l := &http.Server{Handler: mux}, netmem.Listen(c.id)
		x.listeners[c.id+":1"], servers = l, append(servers, server)
		running.Go(func() { server.Serve(l) })
	}
	pool := peer.NewPool(peer.Config{Log: slog.New(slog.DiscardHandler), NetDial: x.dial})
	b.deps.Peers = pool
	b.deps.Now = func() time.Time { return time.Now().Add(time.Duration(x.skipped.Load())) }
	if err := b.deps.Members.(*static.Monitor).Set(append(others, b.deps.Members.Self())); err != nil {
		t.Fatal(err)
	}
	x.g, _ = b.share(1000, 0)
	x.list(x.ctl, x.g)
	ctx, cancel := context.WithCancel(t.Context())
	running.Go(func() { b.leases.Run(ctx) })
	running.Go(func() { onEach(ctx, b.openings.again, b.tellOpenings) })
	defer time.Sleep(silence) // connections that nobody waits for any more are still being made
	defer running.Wait()
	defer func() {
		for _, s := range servers {
			s.Close()
		}
	}()
	defer pool.Close()
	defer cancel()
	f(t, x)
}

// sleep lets the time of the bubble pass, and what follows from that happen.
func (x *leasedHarness) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (x *leasedHarness) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	x.mu.Lock()
	silent, refused := x.mu.silent[addr], x.mu.refused[addr]
	x.mu.Unlock()
	switch {
	case silent:
		ctx, cancel := context.WithTimeout(ctx, silence)
		defer cancel()
		<-ctx.Done()
		return nil, context.Cause(ctx)
	case refused:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	case x.listeners[addr] != nil:
		c, err := x.listeners[addr].Dial(ctx)
		if err == nil {
			x.mu.Lock()
			x.mu.ends[addr] = append(x.mu.ends[addr], c)
			x.mu.Unlock()
		}
		return c, err
	}
	near, far := net.Pipe()
	far.Close()
	return near, nil
}

// As the lease has them: how often it is kept, how long one question takes, and for how long nothing is handed out
// without a controller.
const (
	beatEvery      = 500 * time.Millisecond
	beatTimeout    = 300 * time.Millisecond
	confirmTimeout = 5 * time.Second
)

// stopsWithin is when a host that is cut off hands out no more: a beat, its two questions, and a moment.
const stopsWithin = beatEvery + 2*beatTimeout + 50*time.Millisecond

// silence is how long a dial to a silent host takes.
const silence = 2 * time.Second

// set makes hosts silent, or refuse; connections to them break.
func (x *leasedHarness) set(what map[string]bool, addrs ...string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	clear(x.mu.silent)
	clear(x.mu.refused)
	for _, id := range addrs {
		a := id + ":1"
		what[a] = true
		for _, c := range x.mu.ends[a] {
			c.Close()
		}
		delete(x.mu.ends, a)
	}
}

// gives reports whether a message is handed out now.
func (x *leasedHarness) gives() bool {
	x.t.Helper()
	return x.givesOf(x.g)
}

func (x *leasedHarness) givesOf(g *group) bool {
	before := inFlightOf(g)
	g.takeForPull(x.t.Context(), 1) // what it makes of the message, which is none, does not matter
	return inFlightOf(g) > before
}

func (x *leasedHarness) inFlight() int { return inFlightOf(x.g) }

func inFlightOf(g *group) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.rules.Depth().InFlight
}

// list has a controller push a list of what the host has of a group. It names the list only if it is told to.
func (x *leasedHarness) list(c *fakeController, g *group) {
	x.t.Helper()
	var all []*pb.Assignment
	g.mu.Lock()
	for _, s := range g.mu.shares {
		all = append(all, &pb.Assignment{Group: g.id.ID[:], Name: g.name, Extent: convert.ExtentToProto(s.extent), Counter: s.generation, By: c.id})
	}
	g.mu.Unlock()
	c.mu.Lock()
	c.mu.counter = max(c.mu.counter, x.versions()[g.queue].Counter) // and one more
	c.mu.Unlock()
	x.send(c.set(g.queue, all...))
	c.forget(g.queue)
}

// givesWithin reports whether a message is handed out at any time up to d from now.
func (x *leasedHarness) givesWithin(d time.Duration) bool {
	x.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		if x.gives() {
			return true
		}
		time.Sleep(100 * time.Millisecond)
	}
	return false
}

func others(ids ...string) (out []membership.Host) {
	for _, id := range ids {
		role := "outputhost"
		if strings.HasPrefix(id, "ctl") {
			role = "controller"
		}
		out = append(out, membership.Host{ID: core.HostID(id), Roles: []string{role}, Address: id + ":1", Run: core.RunID{ID: core.NewID(time.Now())}})
	}
	return out
}

// TestHost_CutOffHandsOutNothing: it goes on when it is confirmed, without what was taken from it.
func TestHost_CutOffHandsOutNothing(t *testing.T) {
	leaseBubble(t, others("ctl", "out2"), func(t *testing.T, x *leasedHarness) {
		time.Sleep(5 * time.Second)
		if !x.gives() || x.ctl.renewed.Load() < 8 {
			t.Fatalf("in contact, renewed %d times, it hands out nothing", x.ctl.renewed.Load())
		}
		x.set(x.mu.silent, "ctl", "out2")
		time.Sleep(stopsWithin)
		if x.givesWithin(time.Minute) {
			t.Fatal("cut off it hands out")
		}
		if err := x.deps.Members.(*static.Monitor).Set([]membership.Host{x.deps.Members.Self()}); err != nil { // membership notices, too
			t.Fatal(err)
		}
		if x.givesWithin(time.Minute) {
			t.Fatal("cut off it hands out once membership has lost the others")
		}
		x.ctl.ready.Store(true)
		x.set(x.mu.silent)
		time.Sleep(5 * time.Second)
		x.g.mu.Lock()
		shares := len(x.g.mu.shares)
		x.g.mu.Unlock()
		if shares != 0 || !x.leases.Of(lease.Maker{Controller: "ctl", Run: core.RunID{ID: core.ID{15: 1}}}).Holds(x.deps.Now()) {
			t.Errorf("after the heal: %d shares, which were given to another; lease holds: %t", shares, x.leases.Of(lease.Maker{Controller: "ctl", Run: core.RunID{ID: core.ID{15: 1}}}).Holds(x.deps.Now()))
		}
	})
}

// TestHost_DeliversWithoutAController: who cannot have lost its shares goes on, and does not stop for a moment.
func TestHost_DeliversWithoutAController(t *testing.T) {
	for _, c := range []struct {
		name    string
		others  []membership.Host
		silent  []string
		refused []string
	}{
		{"its process is dead", others("ctl", "out2"), nil, []string{"ctl"}},
		{"its process is dead, and another output host's", others("ctl", "out2"), nil, []string{"ctl", "out2"}},
		{"its machine is dead", others("ctl", "out2"), []string{"ctl"}, nil},
		{"its machine is dead, there is no other output host", others("ctl"), []string{"ctl"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			leaseBubble(t, c.others, func(t *testing.T, x *leasedHarness) {
				time.Sleep(3 * time.Second)
				if len(c.silent) > 0 {
					x.set(x.mu.silent, c.silent...)
				} else {
					x.set(x.mu.refused, c.refused...)
				}
				for range 300 {
					if !x.gives() {
						t.Fatal("nothing is handed out")
					}
					time.Sleep(100 * time.Millisecond)
				}
			})
		})
	}
}

// TestHost_ControllerThatHasJustStarted is reached and does not know the shares yet.
func TestHost_ControllerThatHasJustStarted(t *testing.T) {
	leaseBubble(t, others("ctl", "out2"), func(t *testing.T, x *leasedHarness) {
		x.set(x.mu.silent, "ctl", "out2")
		time.Sleep(dispatch.OwnerLease)
		if x.gives() {
			t.Fatal("cut off it hands out")
		}
		x.set(x.mu.silent)
		began := time.Now()
		if x.givesWithin(confirmTimeout - time.Second); time.Since(began) < confirmTimeout-time.Second {
			t.Errorf("after %s it hands out, unconfirmed", time.Since(began))
		}
		if !x.givesWithin(5 * time.Second) {
			t.Error("the shares stay where they are, and it does not go on with them")
		}
	})
}

// TestHost_HandsOutNothingAfterAPauseUntilConfirmed steps the host's clock over a pause of its process.
func TestHost_HandsOutNothingAfterAPauseUntilConfirmed(t *testing.T) {
	leaseBubble(t, others("ctl", "out2"), func(t *testing.T, x *leasedHarness) {
		time.Sleep(3 * time.Second)
		x.skipped.Store(int64(dispatch.OwnerLease))
		if x.gives() {
			t.Error("it hands out after a pause")
		}
		x.ctl.ready.Store(true)
		time.Sleep(time.Second)
		if gives, holds := x.gives(), x.leases.Of(lease.Maker{Controller: "ctl", Run: core.RunID{ID: core.ID{15: 1}}}).Holds(x.deps.Now()); gives || !holds {
			t.Errorf("after a list without shares it hands out: %t, its lease holds: %t", gives, holds)
		}
	})
}

// TestHost_LockThatEndsInALapse is past due until the lease is restored: nobody looks at it over and over meanwhile,
// and it is not forgotten.
func TestHost_LockThatEndsInALapse(t *testing.T) {
	leaseBubble(t, others("ctl", "out2"), func(t *testing.T, x *leasedHarness) {
		ctx, cancel := context.WithCancel(t.Context())
		var looks atomic.Int64
		var loop sync.WaitGroup
		loop.Go(func() {
			x.deadlines.Run(ctx, func() time.Time {
				if looks.Add(1) > 10_000 { // time stands still in the bubble for who is busy
					cancel()
				}
				return x.deps.Now()
			}, (*group).pump)
		})
		defer loop.Wait()
		defer cancel()
		x.g.mu.Lock()
		lock := x.g.mu.record.Spec.LockTimeout
		x.g.mu.Unlock()
		time.Sleep(time.Second)
		if !x.gives() {
			t.Fatal("nothing is handed out")
		}
		x.g.pump()
		time.Sleep(lock - 5*time.Second)
		x.set(x.mu.silent, "ctl", "out2")
		time.Sleep(10 * time.Second)
		if n := looks.Load(); n > 100 {
			t.Fatalf("the deadlines were looked at %d times in a lapse", n)
		}
		if x.inFlight() != 1 {
			t.Errorf("%d messages in flight in the lapse, want the one whose lock nobody ends", x.inFlight())
		}
		x.set(x.mu.silent)
		time.Sleep(confirmTimeout + 3*time.Second)
		if x.inFlight() != 0 {
			t.Error("after the lapse its lock does not end")
		}
	})
}

// TestHost_ShortCutNeedsNoList: in a cut that ends within the lease the host hands out nothing, and goes on at once.
func TestHost_ShortCutNeedsNoList(t *testing.T) {
	leaseBubble(t, others("ctl", "out2"), func(t *testing.T, x *leasedHarness) {
		time.Sleep(3 * time.Second)
		x.set(x.mu.silent, "ctl", "out2")
		time.Sleep(stopsWithin)
		if x.gives() {
			t.Error("it hands out although its last question had no answer")
		}
		x.set(x.mu.silent)
		time.Sleep(2 * beatEvery)
		if !x.gives() {
			t.Error("after the cut it hands out nothing; there is no list to confirm its shares")
		}
	})
}

// TestHost_ShareThatAnotherHadInALapse hands out and transfers nothing of it before it is resumed with what the other
// host has settled.
func TestHost_ShareThatAnotherHadInALapse(t *testing.T) {
	leaseBubble(t, others("ctl", "out2"), func(t *testing.T, x *leasedHarness) {
		x.g.mu.Lock()
		var s *share
		for _, s = range x.g.mu.shares {
		}
		again := &pb.Assignment{Group: x.g.id.ID[:], Name: x.g.name, Extent: convert.ExtentToProto(s.extent), Counter: s.generation + 2, By: "ctl"}
		x.g.mu.Unlock()
		x.ctl.set(x.g.queue, again)
		x.ctl.ready.Store(true)
		x.skipped.Store(int64(dispatch.OwnerLease))
		time.Sleep(time.Second)
		if gives, holds := x.gives(), x.leases.Of(lease.Maker{Controller: "ctl", Run: core.RunID{ID: core.ID{15: 1}}}).Holds(x.deps.Now()); gives || !holds {
			t.Errorf("after a list with the share as another host had it, it hands out: %t, its lease holds: %t", gives, holds)
		}
	})
}
