package inputhost

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHost_OneExtentThenTheLeast(t *testing.T) {
	bubble(t, 3, nil, func(r *harness) {
		p := r.publisher("p", path)
		p.send()
		p.flush()
		if n := len(r.open(path)); n != 1 {
			t.Fatalf("%d extents for one message, want one", n)
		}
		p.load(3*time.Second, 10*time.Millisecond)
		p.flush()
		r.all(p.n)
		if n := len(r.open(path)); n != 2 {
			t.Errorf("%d extents of a queue that is published to, want two", n)
		}
		time.Sleep(2 * time.Minute)
		if n := len(r.open(path)); n != 0 || len(r.host.list()) != 1 {
			t.Errorf("%d extents of an idle queue", n)
		}
		p.send()
		p.flush()
		r.all(p.n)
	})
}

// A store that is killed ends all extents it holds at once; others are opened on the rest without a wait.
func TestHost_KilledStore(t *testing.T) {
	for name, stores := range map[string]int{"none to spare": 3, "one to spare": 4} {
		t.Run(name, func(t *testing.T) {
			bubble(t, stores, nil, func(r *harness) {
				r.ctl.set(func() { r.ctl.mu.blind = true; r.ctl.mu.delay = 20 * time.Millisecond }) // it has not heard of the death yet
				for _, s := range r.stores {
					s.delay = time.Millisecond
				}
				p := r.publisher("p", path)
				p.load(2*time.Second, 5*time.Millisecond)
				r.stores[1].kill()
				p.load(3*time.Second, 5*time.Millisecond)
				p.flush()
				r.all(p.n)
				r.gapUpTo(100 * time.Millisecond)
				for _, e := range r.open(path) {
					if e.Replicas[0] == "s1" || e.Replicas[1] == "s1" {
						t.Errorf("extent %s is open on the dead store", e.ID)
					}
				}
			})
		})
	}
}

// One extent of two that fails costs its streams nothing: they go on with the other.
func TestHost_OtherExtentTakesOver(t *testing.T) {
	bubble(t, 3, nil, func(r *harness) {
		p := r.publisher("p", path)
		p.load(3*time.Second, 10*time.Millisecond)
		extents := r.open(path)
		if len(extents) != 2 {
			t.Fatalf("%d extents, want two", len(extents))
		}
		r.ctl.set(func() { r.ctl.mu.away = true })
		home := r.homeOf(p)
		home.Fail("", core.Errorf(core.CodeInternal, "a test ends it"))
		before := len(r.acknowledged())
		p.load(time.Second, 10*time.Millisecond)
		time.Sleep(20 * time.Millisecond)
		if n := len(r.acknowledged()) - before; n < 99 {
			t.Errorf("%d messages acknowledged without a controller, want all", n)
		}
		r.ctl.set(func() { r.ctl.mu.away = false })
		p.load(3*time.Second, 10*time.Millisecond)
		p.flush()
		r.all(p.n)
		if n := len(r.open(path)); n != 2 {
			t.Errorf("%d extents afterwards, want two again", n)
		}
	})
}

// A slow store among fast ones is left, after five seconds; its extents end and new ones avoid it.
func TestHost_SlowStoreIsLeft(t *testing.T) {
	bubble(t, 4, nil, func(r *harness) {
		for _, s := range r.stores {
			s.delay = time.Millisecond
		}
		p := r.publisher("p", path)
		p.load(2*time.Second, 10*time.Millisecond)
		r.stores[0].set(func() { r.stores[0].delay = 700 * time.Millisecond })
		p.load(15*time.Second, 10*time.Millisecond)
		p.flush()
		r.all(p.n)
		for _, e := range r.open(path) {
			for _, id := range e.Replicas {
				if id == "s0" {
					t.Errorf("extent %s is open on the slow store", e.ID)
				}
			}
		}
		if n := r.ctl.sealed(); n != 2 {
			t.Errorf("%d extents were sealed, want the two that were on the slow store", n)
		}
	})
}

// All stores stand still for a while: nothing is sealed for it.
func TestHost_HiccupOfAllStores(t *testing.T) {
	bubble(t, 3, nil, func(r *harness) {
		p := r.publisher("p", path)
		p.load(2*time.Second, 10*time.Millisecond)
		for _, s := range r.stores {
			s.set(func() { s.delay = 4 * time.Second })
		}
		p.load(4*time.Second, 10*time.Millisecond)
		for _, s := range r.stores {
			s.set(func() { s.delay = time.Millisecond })
		}
		p.load(2*time.Second, 10*time.Millisecond)
		p.flush()
		r.all(p.n)
		if n := r.ctl.sealed(); n != 0 {
			t.Errorf("%d extents were sealed for a hiccup", n)
		}
	})
}

// A store that answers nothing ends its extents at the append deadline; what was under way is acknowledged by the seal
// or appended again.
func TestHost_SilentStore(t *testing.T) {
	bubble(t, 4, nil, func(r *harness) {
		p := r.publisher("p", path)
		p.load(2*time.Second, 10*time.Millisecond)
		r.stores[2].set(func() { r.stores[2].delay = time.Hour })
		p.send()
		began := time.Now()
		p.flush()
		if took := time.Since(began); took < 4*time.Second || took > 6*time.Second {
			t.Errorf("answered after %s, want about the append deadline", took)
		}
		r.all(p.n)
		p.load(2*time.Second, 10*time.Millisecond)
		p.flush()
		r.all(p.n)
		r.stores[2].kill()
	})
}

// However many queues a store's end hits, only so many seals are under way.
func TestHost_SealsAreBounded(t *testing.T) {
	const queues = 150
	bubble(t, 3, nil, func(r *harness) {
		r.ctl.set(func() { r.ctl.mu.delay = 50 * time.Millisecond })
		var all []*client
		for i := range queues {
			q := path + fmt.Sprintf("%03d", i)
			r.queue(q)
			p := r.publisher(q[1:], q)
			p.send()
			all = append(all, p)
		}
		for _, p := range all {
			p.flush()
			p.send()
		}
		synctest.Wait()
		r.stores[0].kill()
		r.forget(r.stores[0])
		for _, p := range all {
			p.send()
		}
		for _, p := range all {
			p.flush()
		}
		r.all(3 * queues)
		time.Sleep(10 * time.Second)
		var most int
		r.ctl.set(func() { most = r.ctl.mu.most })
		if n := r.ctl.sealed(); most > atOnce || most < atOnce/4 || n != queues {
			t.Errorf("%d seals at once, %d in all; want up to %d, and %d", most, n, atOnce, queues)
		}
	})
}

// A fence while the host stands still: the acknowledgements of before that it reads afterwards are in the sealed
// extent; nothing else is acknowledged but by the seal.
func TestHost_ZombieAcknowledgesOnlyWhatIsSealed(t *testing.T) {
	bubble(t, 3, nil, func(r *harness) {
		for i, s := range r.stores {
			s.delay = time.Duration(i+1) * 3 * time.Millisecond
		}
		p := r.publisher("p", path)
		for range 20 {
			p.load(200*time.Millisecond, 2*time.Millisecond)
			for _, e := range r.open(path) { // a controller ends it, unasked
				if _, err := r.ctl.seal(e, 0); err != nil {
					t.Fatal(err)
				}
			}
		}
		p.flush()
		r.all(p.n)
		if r.ctl.sealed() < 20 {
			t.Errorf("%d extents were sealed", len(r.ctl.seals))
		}
	})
}

// With one holder the outcome stays open until the repair has made a second.
func TestHost_OneHolderWaitsForRepair(t *testing.T) {
	bubble(t, 3, nil, func(r *harness) {
		for _, s := range r.stores {
			s.delay = 100 * time.Millisecond
		}
		r.stores[2].delay = time.Hour // so that no replica set acknowledges
		p := r.publisher("p", path)
		r.ctl.set(func() { r.ctl.mu.holders = 1 })
		p.send()
		time.Sleep(time.Second)
		r.stores[2].kill()
		time.Sleep(3 * time.Second)
		if n := len(r.acknowledged()); n != 0 {
			t.Fatalf("%d messages acknowledged that one store holds", n)
		}
		r.ctl.set(func() { r.ctl.mu.holders = 0 })
		time.Sleep(time.Second)
		r.all(1)
	})
}

func (r *harness) acknowledged() (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for body, o := range r.mu.outcomes {
		if o.err == nil {
			out = append(out, body)
		}
	}
	return out
}

// A host that is full says so, with a time, takes what it has, and is published to again afterwards.
func TestHost_ThrottlesWithATime(t *testing.T) {
	bubble(t, 3, func(c *Config) { c.MaxInFlight = 10_000 }, func(r *harness) {
		for _, s := range r.stores {
			s.set(func() { s.delay = 50 * time.Millisecond })
		}
		p, other := r.publisher("p", path), r.publisher("o", path)
		for range 2000 {
			p.send()
			other.send()
		}
		p.flush()
		other.flush()
		r.all(4000)
		if n := r.host.inFlight.Load(); n != 0 {
			t.Errorf("%d bytes in flight when everything is answered", n)
		}
		throttled := r.counter("columba_inputhost_throttled_messages_total", "host")
		if n := r.counter("columba_inputhost_answers_total", "throttled"); n == 0 || n != throttled {
			t.Errorf("%g messages were answered as throttled, %g throttled", n, throttled)
		}
		if n := r.counter("columba_inputhost_answers_total", "refused"); n != 0 {
			t.Errorf("%g messages that were only throttled count as refused", n)
		}
	})
}

// A queue whose extent is full goes on with it until it has a successor.
func TestHost_RollsWithoutAGap(t *testing.T) {
	bubble(t, 3, func(c *Config) { c.RollBytes = 5_000; c.MinOpenExtents = 1 }, func(r *harness) {
		p := r.publisher("p", path)
		p.load(5*time.Second, 5*time.Millisecond)
		p.flush()
		r.all(p.n)
		r.gapUpTo(20 * time.Millisecond)
		if n := len(r.open(path)); n != 1 {
			t.Errorf("%d extents open, want one", n)
		}
		time.Sleep(time.Second)
		if n := len(r.ctl.seals); n < 5 || n > 20 {
			t.Errorf("%d extents of 5 kB were sealed for %d small messages", n, p.n)
		}
	})
}

// Publishers are told when an input host of their queue comes; those that rank it first go there.
func TestHost_TellsPublishersOfOtherHosts(t *testing.T) {
	bubble(t, 3, nil, func(r *harness) {
		q := r.publisher("p", path)
		q.send()
		q.flush()
		link, err := r.pool.Link(r.t.Context(), r.self.Address, "/v1/publish")
		if err != nil {
			t.Fatal(err)
		}
		stream, got := r.greet(link)
		if f := <-got; f.Type != wire.TypePublishHelloOK {
			t.Fatalf("frame %d for a hello", f.Type)
		}
		all := append(r.members.Hosts(""), membership.Host{ID: "other", Roles: []string{"inputhost"}, Address: "other:1"})
		for range 2 { // the second changes nothing
			if err := r.members.Set(all); err != nil {
				t.Fatal(err)
			}
		}
		f := <-got
		var m pb.Reconfigure
		if err := proto.Unmarshal(f.Body, &m); f.Type != wire.TypeReconfigure || err != nil || len(m.Hosts) != 2 || m.Version == 0 {
			t.Fatalf("frame %d, %v, %v; want a list of two hosts", f.Type, &m, err)
		}
		time.Sleep(10 * time.Second)
		if len(got) > 0 {
			t.Errorf("another frame, %d, though nothing changed", (<-got).Type)
		}
		link.Forget(stream)
	})
}

// greet opens a publish stream.
func (r *harness) greet(link *ws.Mux) (stream uint32, got frames) {
	r.t.Helper()
	got = make(frames, 10)
	stream, err := link.Open(got)
	if err != nil {
		r.t.Fatal(err)
	}
	hello, err := proto.Marshal(&pb.PublishHello{Queue: path})
	if err != nil {
		r.t.Fatal(err)
	}
	link.Conn.Post(wire.AppendFrame(nil, wire.TypePublishHello, stream, hello))
	return stream, got
}

type frames chan wire.Frame

func (c frames) HandleFrame(f wire.Frame, _ *ws.Message) {
	f.Body = slices.Clone(f.Body)
	c <- f
}

func (c frames) Closed(error) {}
