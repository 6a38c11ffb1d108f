package cluster

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/quota"
	"github.com/columbamq/columba/internal/underrace"
)

// keeper is the controller that divides the limits of /t.
func (w *world) keeper() core.HostID {
	w.t.Helper()
	var ids []core.HostID
	w.eventually("one controller divides the limits", 15*time.Second, func() bool {
		ids = w.acting.responsible(quota.Key("/t"))
		return len(ids) == 1
	})
	return ids[0]
}

// TestCluster_NamespaceRateOfTwoControllers publishes to two queues over two input hosts, which ask for their quotas
// while each of them knows another controller, and after the one is killed that divides the limit, and back. The sum is
// never above the limit by more than the leases of one keeper. It is the limit while a controller divides it for both
// hosts.
func TestCluster_NamespaceRateOfTwoControllers(t *testing.T) {
	bubble(t, Options{Controllers: 2, Inputs: 2}, func(w *world) {
		const rate, length = 100, 10
		w.limit(core.NamespaceSpec{MessagesPerSecond: rate})
		_, err := w.Client.Admin().CreateQueue(w.t.Context(), core.QueueSpec{Path: "/t/other"})
		w.ok(err)
		w.keeper()
		publishers := underrace.Of(4, 8)
		a, b := w.flood(queue, publishers, 10, 30*time.Millisecond), w.flood("/t/other", publishers, 10, 30*time.Millisecond)
		passes := func(when string, least int64) {
			t.Helper()
			before := a.acked.Load() + b.acked.Load()
			sleep(length * time.Second)
			got := a.acked.Load() + b.acked.Load() - before
			t.Logf("%s: %d messages in %d s", when, got, length)
			if most := int64(rate * (length + quota.LeaseFor.Seconds())); got > most || got < rate*length*least/100 {
				t.Errorf("%s: %d messages in %d s, want at most %d and at least %d in 100 of the limit", when, got, length, most, least)
			}
		}
		sleep(5 * time.Second)
		passes("nothing fails", 80)
		w.ok(w.roster.suspect(InputOf(0), ControllerOf(0), 1))
		w.ok(w.roster.suspect(InputOf(1), ControllerOf(1), 1))
		passes("each host knows another controller", 60)
		passes("each host still knows another controller", 60)
		w.ok(w.roster.trustAll())
		passes("all are known again", 60)
		first := w.keeper()
		w.Crash(first)
		passes("its controller was killed", 30)
		if second := w.keeper(); second == first {
			t.Errorf("%s is responsible after it was killed", second)
		}
		passes("after its controller was killed", 70)
		w.Up(first)
		passes("the controller is back", 60)
		if w.keeper() != first {
			t.Error("the controller that is back does not divide the limit")
		}
		w.Restart(first)
		passes("its controller was restarted", 60)
		passes("after its controller was restarted", 80)
		if n := a.failed.Load() + b.failed.Load(); n > 0 {
			t.Errorf("%d messages failed: they had only to wait", n)
		}
		a.stop()
		b.stop()
	})
}

// TestCluster_BacklogCapOfTwoControllers fills a queue that nobody consumes to its cap, or to that of its namespace,
// while the controller that knows the backlog is killed and comes back. Then it is consumed, and killed once more
// meanwhile.
func TestCluster_BacklogCapOfTwoControllers(t *testing.T) {
	const cap, size = 256 << 10, 4 << 10
	for name, spec := range map[string]core.QueueSpec{
		"queue":     {Path: queue, MaxBacklog: cap},
		"namespace": {Path: queue},
	} {
		t.Run(name, func(t *testing.T) {
			underrace.One(t, name == "namespace")
			bubbleOf(t, Options{Controllers: 2, Inputs: 2, Input: rollAt(50_000)}, spec, func(w *world) {
				w.group("g", nil)
				if spec.MaxBacklog == 0 {
					w.limit(core.NamespaceSpec{BacklogBytes: cap})
				}
				keeper := w.keeper()
				f := w.flood(queue, 6, size, 50*time.Millisecond)
				full := func(when string, least int64) {
					t.Helper()
					n := f.acked.Load() * size
					t.Logf("%s: %d bytes of %d", when, n, cap)
					if n > cap*110/100 || n < cap*least/100 {
						t.Errorf("%s %d bytes were stored, the cap is %d", when, n, cap)
					}
				}
				sleep(3 * time.Second)
				w.Crash(keeper)
				sleep(30 * time.Second)
				full("its controller was killed", 70)
				w.Up(keeper)
				sleep(30 * time.Second)
				full("the controller is back", 70)
				w.Restart(keeper)
				sleep(30 * time.Second)
				full("the controller was restarted", 70)
				con := w.consumer("g")
				consumed := func(when string, more int64) {
					t.Helper()
					began, most := time.Now(), f.acked.Load()+more/size
					for f.acked.Load() <= most {
						if d := w.take(con, time.Second); d != nil {
							w.ok(d.Ack())
						}
						if time.Since(began) > 30*time.Second {
							t.Fatalf("%s %d of %d bytes passed", when, (f.acked.Load()-most)*size+more, more)
						}
					}
					t.Logf("%s: %d bytes passed in %s", when, more, time.Since(began))
				}
				consumed("consumed", 2*cap)
				w.Crash(keeper)
				consumed("consumed after its controller was killed", 2*cap)
				w.close(con)
				if n := f.failed.Load(); n > 0 {
					t.Errorf("%d messages failed: they had only to wait", n)
				}
				f.stop()
			})
		})
	}
}
