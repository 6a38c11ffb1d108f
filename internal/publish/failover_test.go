package publish

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/netmem"
	"github.com/columbamq/columba/internal/publish/publishtest"
)

func hostsOf(names ...string) (out []Host) {
	for _, n := range names {
		out = append(out, Host{ID: core.HostID(n), Address: n + ":1"})
	}
	return out
}

// first is the host that the publisher prefers.
func first(p *Publisher, names ...string) string {
	return string(core.Rank(p.key, hostsOf(names...), hostID)[0].ID)
}

// A host that is killed is replaced at once by another that was known before, although nobody can be asked where to go.
func TestPublisher_KilledHostIsReplacedWithoutRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m memory
		killed := make(map[string]bool)
		names := []string{"a", "b"}
		for _, n := range names {
			m.serve(n, &publishtest.Host{OnBatch: func(b *publishtest.Batch) {
				if !killed["first"] {
					killed["first"] = true
					m.listeners[n].Close()
					b.Cut()
					return
				}
				b.Ack()
			}})
		}
		defer m.stop()
		routed := 0
		p := m.routed(func(context.Context) ([]Host, error) {
			if routed++; routed > 1 {
				return nil, core.Errorf(core.CodeUnavailable, "the frontend is away")
			}
			return hostsOf(names...), nil
		})
		got := publishOne(t, p)
		if got.err != nil || got.in > 100*time.Millisecond || routed != 1 {
			t.Errorf("got %+v after %d look-ups, want a receipt of the other host within 100 ms and no second look-up", got, routed)
		}
	})
}

// A host that is stopped answers nothing, not even a ping.
func TestPublisher_StoppedHostIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m memory
		stopped := make(chan struct{})
		var stood atomic.Bool
		names := []string{"a", "b", "c"}
		for _, n := range names {
			m.serve(n, &publishtest.Host{OnBatch: func(b *publishtest.Batch) {
				if !stood.Swap(true) {
					<-stopped
					return
				}
				b.Ack()
			}})
		}
		defer m.stop()
		defer close(stopped)
		p := m.publisher(func() []Host { return hostsOf(names...) })
		got := publishOne(t, p)
		if got.err != nil || got.in < silentTimeout || got.in > silentTimeout+2*tick {
			t.Errorf("got %+v, want a receipt of another host after %s", got, silentTimeout)
		}
	})
}

// A host that takes connections and does not greet, as a stopped one does, holds nobody up for long.
func TestPublisher_HostThatDoesNotGreetIsPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m memory
		m.serve("good", &publishtest.Host{})
		mute, hang := netmem.Listen("mute"), make(chan struct{})
		srv := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang })}
		m.listeners["mute"] = mute
		m.servers = append(m.servers, srv)
		m.wg.Go(func() { srv.Serve(mute) })
		defer m.stop()
		defer close(hang)
		var p *Publisher
		for p == nil || first(p, "good", "mute") != "mute" {
			p = m.publisher(func() []Host { return hostsOf("good", "mute") })
		}
		if got := publishOne(t, p); got.err != nil || got.in < greetTimeout || got.in > greetTimeout+100*time.Millisecond {
			t.Errorf("got %+v, want a receipt after %s", got, greetTimeout)
		}
	})
}

// Publishers spread over the hosts, and all of them come to a host that joins which prefer it, without a gap.
func TestPublisher_SpreadAndRebalance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m memory
		var joined atomic.Bool
		both := []*pb.HostAddress{{Id: "a", Address: "a:1"}, {Id: "b", Address: "b:1"}}
		counts := make(map[string]*atomic.Int32)
		for _, n := range []string{"a", "b"} {
			counts[n] = new(atomic.Int32)
			m.serve(n, &publishtest.Host{OnBatch: func(b *publishtest.Batch) {
				counts[n].Add(1)
				if joined.Load() {
					b.Reconfigure(2, both...)
					b.Reconfigure(1, both[0]) // older: of no account
				}
				b.Ack()
			}})
		}
		defer m.stop()
		const publishers = 40
		want := 0
		var all []*Publisher
		for range publishers {
			p := m.publisher(func() []Host { return hostsOf("a") })
			all = append(all, p)
			if first(p, "a", "b") == "b" {
				want++
			}
			if got := publishOne(t, p); got.err != nil {
				t.Fatal(got.err)
			}
		}
		if n := counts["b"].Load(); n != 0 || want < 5 || want > 35 {
			t.Fatalf("%d batches at a host that nobody knows; %d of %d prefer it", n, want, publishers)
		}
		joined.Store(true)
		for range 2 { // with the answer to the first they learn of it
			for _, p := range all {
				if got := publishOne(t, p); got.err != nil || got.in > 10*time.Millisecond {
					t.Fatal(got)
				}
				synctest.Wait()
			}
		}
		if n := int(counts["b"].Load()); n != want {
			t.Errorf("%d publishers moved to the host that joined, want the %d that prefer it", n, want)
		}
	})
}

func TestPublisher_ReconfigureWithoutTheHostMovesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m memory
		left := &publishtest.Host{OnBatch: func(b *publishtest.Batch) {
			b.Reconfigure(1, &pb.HostAddress{Id: "b", Address: "b:1"})
			b.Ack()
		}}
		m.serve("a", left)
		other := &publishtest.Host{}
		m.serve("b", other)
		defer m.stop()
		p := m.publisher(func() []Host { return hostsOf("a") })
		for i := range 3 {
			got := publishOne(t, p)
			if want := other.Extent; got.err != nil || i > 0 && got.at.Extent != want {
				t.Errorf("message %d: %+v, want it on %s", i, got, fmt.Sprint(want))
			}
			synctest.Wait()
		}
		if n := len(left.Stored()); n != 1 {
			t.Errorf("%d messages on the host that is not in the list", n)
		}
	})
}
