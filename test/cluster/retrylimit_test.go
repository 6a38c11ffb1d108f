package cluster

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
)

// retriesHeld consumes for a while, and answers how many first deliveries there were, and the most retries at any
// second.
func (w *world) retriesHeld(con *client.Consumer, d time.Duration, how func(*client.Delivery)) (firsts int, most uint64) {
	w.t.Helper()
	looked := time.Now()
	for end := looked.Add(d); time.Now().Before(end); {
		if d := w.take(con, min(time.Second, time.Until(end))); d != nil {
			if d.Attempt == 1 {
				firsts++
			}
			how(d)
		}
		if now := time.Now(); now.Sub(looked) >= time.Second {
			held := w.depth("g").Retries
			if held > most { // a message that was appended to the retry queue a moment ago may be counted in both places
				sleep(100 * time.Millisecond)
				held = min(held, w.depth("g").Retries)
			}
			looked, most = now, max(most, held)
		}
	}
	return firsts, most
}

// manyExtents publishes messages to extents that all output hosts have some of.
func (w *world) manyExtents(n int) {
	w.t.Helper()
	for at := 0; at < n; at += 100 {
		w.publish(numbers(at+1, at+100)...)
		sleep(time.Second)
	}
}

// TestRule_RetryLimit_AllFail has all messages fail, with waits in memory and in the retry queue, and one and three
// output hosts: the group holds as many retries as it may, and first deliveries go on as retries end. A higher limit
// lets the rest go at once, and in the end nothing is left.
func TestRule_RetryLimit_AllFail(t *testing.T) {
	const n, limit, prefetch = 2000, 100, 10
	for _, outputs := range []int{1, 3} {
		for _, wait := range []time.Duration{20 * time.Second, 50 * time.Second} {
			t.Run(fmt.Sprintf("%d hosts, %s", outputs, wait), func(t *testing.T) {
				underrace.One(t, outputs == 3 && wait == 20*time.Second)
				bubble(t, Options{Outputs: outputs, Input: rollAt(4000)}, func(w *world) {
					w.group("g", func(g *core.GroupSpec) {
						patient(g)
						g.MaxDeliveries, g.MaxDelayedRetries = 3, limit
					})
					w.manyExtents(n)
					con := w.consumer("g", client.Prefetch(prefetch))
					fail := func(d *client.Delivery) { w.ok(d.Nack(client.After(wait), client.Reason("bad"))) }
					firsts, most := w.retriesHeld(con, 5*time.Minute, fail)
					d := w.depth("g")
					t.Logf("%d first deliveries, %d dead, %d retries at most; %+v", firsts, d.Dead, most, d)
					if bound := uint64(limit + outputs*prefetch); most > bound || most < limit/2 {
						t.Errorf("%d retries, want at most %d", most, bound)
					}
					if d.Dead < limit || firsts < int(d.Dead)+limit/3 || firsts >= n {
						t.Errorf("%d first deliveries while %d retries have ended", firsts, d.Dead)
					}
					if outputs == 1 && wait > 30*time.Second { // else the oldest one is a retry on its way
						why := w.stuck("g", "delayed_retry_limit")
						if !strings.Contains(why.Detail, "the limit is 100") || !strings.Contains(why.Text, "--max-delayed-retries") {
							t.Errorf("why-stuck says %q, %q", why.Text, why.Detail)
						}
					}
					_, err := w.Client.Admin().UpdateGroup(w.t.Context(), core.GroupSpec{Queue: queue, Name: "g", MaxDelayedRetries: 100_000})
					w.ok(err)
					more, _ := w.retriesHeld(con, 20*time.Second, fail)
					if firsts += more; firsts != n {
						t.Errorf("%d first deliveries after the limit was raised, want %d", firsts, n)
					}
					w.retriesHeld(con, 2*wait, func(d *client.Delivery) { w.ok(d.Ack()) })
					w.eventually("nothing is left", time.Minute, func() bool {
						d := w.depth("g")
						return d.Ready+d.InFlight+d.Delayed+d.Retries == 0
					})
					w.close(con)
				})
			})
		}
	}
}

// TestRule_RetryLimit_GoodOnesGoOn has one message of four fail, with the breaker on and off: the group holds as many
// retries as it may, and all good messages are delivered once.
func TestRule_RetryLimit_GoodOnesGoOn(t *testing.T) {
	const n, limit, prefetch = 1600, 100, 10
	for _, breaker := range []int{core.BreakerOff, core.BreakerAlways} {
		for _, outputs := range []int{1, 2} {
			t.Run(fmt.Sprintf("breaker %d, %d hosts", breaker, outputs), func(t *testing.T) {
				underrace.One(t, outputs == 2 && breaker == core.BreakerAlways)
				bubble(t, Options{Outputs: outputs, Input: rollAt(4000)}, func(w *world) {
					w.group("g", func(g *core.GroupSpec) {
						g.MaxDeliveries, g.MaxDelayedRetries, g.Breaker, g.NoNackThrottle = 3, limit, breaker, true
					})
					w.manyExtents(n)
					con := w.consumer("g", client.Prefetch(prefetch))
					good := make(map[string]int)
					most := uint64(0)
					for began := time.Now(); (len(good) < n*3/4 || w.letters("g") < n/4) && time.Since(began) < 20*time.Minute; {
						_, held := w.retriesHeld(con, 10*time.Second, func(d *client.Delivery) {
							body := string(d.Body)
							if i, err := strconv.Atoi(body); err != nil || i%4 == 0 {
								w.ok(d.Nack(client.After(20 * time.Second)))
							} else {
								good[body]++
								w.ok(d.Ack())
							}
						})
						most = max(most, held)
					}
					if bound := uint64(limit + outputs*prefetch); most > bound || most < limit/2 {
						t.Errorf("%d retries, want at most %d", most, bound)
					}
					if len(good) != n*3/4 {
						t.Errorf("%d of %d good messages were delivered", len(good), n*3/4)
					}
					for body, times := range good {
						if times != 1 {
							t.Errorf("%s was delivered %d times", body, times)
						}
					}
					if dead := w.letters("g"); dead != n/4 {
						t.Errorf("%d dead letters, want %d", dead, n/4)
					}
					w.close(con)
				})
			})
		}
	}
}

// TestRule_RetryLimit_OverACrash has the output host crash while the group has as many retries as it may: the next one
// hears of them within seconds, and everything ends.
func TestRule_RetryLimit_OverACrash(t *testing.T) {
	const limit, prefetch = 100, 10
	n := underrace.Of(300, 1000)
	bubble(t, Options{}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) {
			patient(g)
			g.MaxDeliveries, g.MaxDelayedRetries = core.UnlimitedDeliveries, limit
		})
		w.publish(numbers(1, n)...)
		con := w.consumer("g", client.Prefetch(prefetch))
		fail := func(d *client.Delivery) { _ = d.Nack(client.After(3 * time.Minute)) }
		firsts, _ := w.retriesHeld(con, time.Minute, fail)
		w.Crash(Output)
		w.Up(Output)
		more, most := w.retriesHeld(con, time.Minute, fail)
		t.Logf("%d first deliveries, %d after the crash, %d retries at most", firsts, more, most)
		if firsts < limit*9/10 || firsts > limit+prefetch || more > limit/5+prefetch {
			t.Errorf("%d first deliveries, %d after the crash, %d retries at most", firsts, more, most)
		}
		got, _ := w.retriesHeld(con, 2*time.Minute, fail)
		if got > 0 {
			t.Errorf("%d first deliveries while none of %d retries ended", got, w.depth("g").Retries)
		}
		for began := time.Now(); w.depth("g").Ready+w.depth("g").Retries > 0 && time.Since(began) < 10*time.Minute; {
			w.retriesHeld(con, 10*time.Second, func(d *client.Delivery) { _ = d.Ack() })
		}
		w.eventually("nothing is left", time.Minute, func() bool {
			d := w.depth("g")
			return d.Ready+d.InFlight+d.Delayed+d.Retries == 0
		})
		w.close(con)
	})
}
