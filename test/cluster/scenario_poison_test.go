package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
)

// The tests TestScenario_… run what goes wrong together in practice, and check what the pages on concepts promise for
// it: no message is lost, what is bad becomes a dead letter after max deliveries, what was acked stays acked, and the
// rest goes on within a bounded time.

// forgets is for how long before a crash of an output host an ack may be forgotten: about a second.
const forgets = 1500 * time.Millisecond

// deliveries are what a test was given of a group.
type deliveries struct {
	w       *world
	count   map[string]int       // by body
	acked   map[string]time.Time // the last time
	crashes []time.Time
}

func (w *world) deliveries() *deliveries {
	return &deliveries{w: w, count: make(map[string]int), acked: make(map[string]time.Time)}
}

// note counts a delivery. A message that was acked comes again only after a crash that may have forgotten the ack.
func (g *deliveries) note(d *client.Delivery) {
	g.w.t.Helper()
	body := string(d.Body)
	g.count[body]++
	at, done := g.acked[body]
	if !done {
		return
	}
	for _, crash := range g.crashes {
		if since := crash.Sub(at); since >= 0 && since < forgets {
			return
		}
	}
	g.w.t.Errorf("%s came again as attempt %d, it was acked %s ago and no crash has forgotten it", body, d.Attempt, time.Since(at))
}

func (g *deliveries) ack(d *client.Delivery) {
	g.w.t.Helper()
	g.w.ok(d.Ack())
	g.acked[string(d.Body)] = time.Now()
}

// crash kills a host and starts it again.
func (g *deliveries) crash(id core.HostID) {
	g.crashes = append(g.crashes, time.Now())
	g.w.Crash(id)
	g.w.Up(id)
}

// dead checks that these are the group's dead letters, each once and with so many attempts.
func (w *world) dead(group string, want []string, attempts int) {
	w.t.Helper()
	w.eventually("all that is bad is dead", 2*time.Minute, func() bool { return w.letters(group) >= len(want) })
	for d, err := range w.Client.Admin().DeadLetters(w.t.Context(), queue, group) {
		w.ok(err)
		if d.Attempts != attempts {
			w.t.Errorf("%s is dead after %d attempts, want %d", d.Message.Body, d.Attempts, attempts)
		}
	}
	w.equal("dead letters", w.listed(group), want)
}

// TestScenario_PoisonOverHostKills has one of ten messages fail at every delivery while two output hosts are killed in
// turn: each bad message is one dead letter after max deliveries, and every good one is acked.
func TestScenario_PoisonOverHostKills(t *testing.T) {
	bubble(t, Options{Outputs: 2}, func(w *world) {
		const most, kills = 5, 6
		w.group("g", func(g *core.GroupSpec) {
			g.LockTimeout, g.MaxDeliveries, g.Backoff = 5*time.Second, most, core.Backoff{Min: time.Second, Factor: 1, Max: time.Second}
		})
		bad := func(body string) bool { return strings.HasSuffix(body, "7") }
		con := w.consumer("g", client.Prefetch(20))
		g := w.deliveries()
		settle := func(d *client.Delivery) {
			g.note(d)
			if bad(string(d.Body)) {
				w.ok(d.Nack(client.Reason("bad")))
			} else {
				g.ack(d)
			}
			sleep(10 * time.Millisecond)
		}
		bodies := numbers(1, 900)
		for i := range kills {
			w.publish(bodies[150*i : 150*(i+1)]...)
			for end := time.Now().Add(7 * time.Second); time.Now().Before(end); {
				if d := w.take(con, time.Until(end)); d != nil {
					settle(d)
				}
			}
			g.crash(OutputOf(i % 2))
		}
		began := time.Now()
		for d := w.take(con, 30*time.Second); d != nil; d = w.take(con, 30*time.Second) {
			settle(d)
		}
		if took := time.Since(began); took > 2*time.Minute {
			t.Errorf("the rest took %s after the last kill", took)
		}
		var want []string
		for _, body := range bodies {
			if !bad(body) && g.acked[body].IsZero() {
				t.Errorf("%s was not delivered", body)
			}
			if bad(body) {
				want = append(want, body)
				if n := g.count[body]; n > most+kills { // each kill may forget a first attempt
					t.Errorf("%s was delivered %d times, want at most %d", body, n, most+kills)
				}
			}
		}
		w.dead("g", want, most)
		w.eventually("nothing is left", time.Minute, func() bool { d := w.depth("g"); return d.Ready+d.InFlight+d.Delayed == 0 })
		w.close(con)
	})
}

// TestScenario_LoneConsumerWithPoison gives the only consumer of a group a long job, a message that hangs, and many
// good ones. The last attempt of the one that hangs waits for nothing, since there is no other consumer, and the others
// do not wait for it: all of them are acked at their first attempt.
func TestScenario_LoneConsumerWithPoison(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		const lock, long = 20 * time.Second, 5 * time.Minute
		w.group("g", func(g *core.GroupSpec) { g.LockTimeout, g.MaxDeliveries = lock, 2 })
		good := numbers(1, 1000)
		w.publish(append([]string{"long", "hangs"}, good...)...)
		con := w.consumer("g", client.Prefetch(16))
		g := w.deliveries()
		var job *client.Delivery
		var gap, extended time.Duration
		began, last := time.Now(), time.Now()
		for len(g.acked) < len(good)+1 && time.Since(began) < 2*long {
			d := w.take(con, time.Second)
			if now := time.Since(began); job != nil && now-extended >= lock/4 {
				extended = now
				if now >= long {
					g.ack(job)
					job = nil
				} else {
					w.ok(job.Extend(lock))
				}
			}
			if d == nil {
				continue
			}
			g.note(d)
			switch string(d.Body) {
			case "long":
				job = d
			case "hangs":
			default:
				gap, last = max(gap, time.Since(last)), time.Now()
				if d.Attempt != 1 {
					t.Errorf("%s came as attempt %d", d.Body, d.Attempt)
				}
				sleep(100 * time.Millisecond)
				g.ack(d)
			}
		}
		t.Logf("%d messages acked in %s, the longest pause was %s", len(g.acked), time.Since(began), gap)
		if len(g.acked) < len(good)+1 {
			t.Errorf("%d of %d messages are acked", len(g.acked), len(good)+1)
		}
		if gap > 5*time.Second {
			t.Errorf("no good message came for %s", gap)
		}
		if n := g.count["long"]; n != 1 {
			t.Errorf("the long job was delivered %d times", n)
		}
		w.dead("g", []string{"hangs"}, 2)
		if n := g.count["hangs"]; n != 2 {
			t.Errorf("the message that hangs was delivered %d times, want 2", n)
		}
		w.close(con)
	})
}

// TestScenario_PoisonWithCreditOfOne gives the only consumer of a group one message at a time. Five messages fail at
// every delivery, come again at once and may do so for ever: a failed message does not hold up those behind it.
func TestScenario_PoisonWithCreditOfOne(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) { g.MaxDeliveries = core.UnlimitedDeliveries })
		bodies := numbers(1, 200)
		w.publish(bodies...)
		con := w.consumer("g", client.Prefetch(1))
		g := w.deliveries()
		began := time.Now()
		for len(g.acked) < len(bodies)-5 && time.Since(began) < 10*time.Minute {
			d := w.take(con, time.Minute)
			if d == nil {
				continue
			}
			g.note(d)
			if string(d.Body) <= bodies[4] {
				w.ok(d.Nack())
			} else {
				g.ack(d)
			}
		}
		t.Logf("%d good messages acked in %s", len(g.acked), time.Since(began))
		if len(g.acked) < len(bodies)-5 {
			t.Errorf("%d of %d good messages are acked after 10 minutes", len(g.acked), len(bodies)-5)
		}
		if n := w.letters("g"); n != 0 {
			t.Errorf("%d dead letters", n)
		}
		w.close(con)
	})
}

// TestScenario_OutageWithCreditOfOne has a service that the workers need be away for 15 minutes, while each worker
// takes one message at a time: the outage makes no dead letters, and when the service is back everything is done within
// minutes.
func TestScenario_OutageWithCreditOfOne(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) { g.NoNackThrottle = true })
		bodies := numbers(1, 300)
		w.publish(bodies...)
		con := w.consumer("g", client.Prefetch(1))
		for range 50 {
			w.ok(w.take(con, time.Minute).Ack())
		}
		n := w.stop(con, outages["they nack"], underrace.Of(5*time.Minute, 15*time.Minute))
		letters, opened := w.letters("g"), w.depth("g").BreakerOpen
		t.Logf("%d deliveries in the outage, the breaker open for %s, %d dead letters", n, opened, letters)
		if letters != 0 {
			t.Errorf("the outage made %d dead letters", letters)
		}
		began := time.Now()
		got := w.collect(con, len(bodies)-50-letters)
		t.Logf("%d messages acked after the outage in %s", len(got), time.Since(began))
		if len(got) != len(bodies)-50-letters {
			t.Errorf("%d messages came after the outage, want %d", len(got), len(bodies)-50-letters)
		}
		if took := time.Since(began); took > 5*time.Minute {
			t.Errorf("recovery took %s", took)
		}
		w.close(con)
	})
}
