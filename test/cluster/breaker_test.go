package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// outage is how workers do not work: what becomes of a delivery.
var outages = map[string]func(w *world, d *client.Delivery){
	"they hang": func(*world, *client.Delivery) {},
	"they nack": func(w *world, d *client.Delivery) { w.ok(d.Nack(client.Reason("database is away"))) },
}

// stop takes what a consumer gets for a while, and does not do the work.
func (w *world) stop(con *client.Consumer, how func(*world, *client.Delivery), d time.Duration) (n int) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		if d := w.take(con, time.Until(end)); d != nil {
			n++
			how(w, d)
		}
	}
	return n
}

// TestRule_Breaker_OutageOfAllWorkers: a total outage of the workers for several lock timeouts: 0 dead-lettered by it;
// after recovery only the truly bad ones are. The output host crashes in the middle of it.
func TestRule_Breaker_OutageOfAllWorkers(t *testing.T) {
	const lock = 5 * time.Second
	for name, how := range outages {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options{}, func(w *world) {
				w.group("g", func(g *core.GroupSpec) { g.LockTimeout, g.MaxDeliveries = lock, 3 })
				bodies := numbers(1, 300)
				w.publish(bodies...)
				con := w.consumer("g", client.Prefetch(50))
				for range 50 {
					w.ok(w.take(con, time.Minute).Ack())
				}
				n := w.stop(con, how, 10*lock)
				opened := w.depth("g").BreakerOpen
				if opened < 5*lock || opened > 10*lock {
					t.Errorf("the breaker was open for %s of %s", opened, 10*lock)
				}
				w.Crash(Output)
				w.Up(Output)
				n += w.stop(con, how, 10*lock)
				if letters := w.letters("g"); letters != 0 {
					t.Fatalf("the outage made %d dead letters", letters)
				}
				if n > 400 {
					t.Errorf("%d deliveries in an outage of %s: they do not back off", n, 20*lock)
				}
				w.close(con) // the workers are started anew
				con = w.consumer("g", client.Prefetch(50))
				began := time.Now()
				for d := w.take(con, 30*time.Second); d != nil; d = w.take(con, 30*time.Second) {
					if strings.HasSuffix(string(d.Body), "7") {
						w.ok(d.Nack(client.Reason("truly bad")))
					} else {
						w.ok(d.Ack())
					}
				}
				w.eventually("the bad ones are dead letters", time.Minute, func() bool { return w.letters("g") == 25 })
				for d, err := range w.Client.Admin().DeadLetters(w.t.Context(), queue, "g") {
					w.ok(err)
					if body := string(d.Message.Body); !strings.HasSuffix(body, "7") || d.Error != "truly bad" {
						t.Errorf("%s is a dead letter: %s", body, d.Error)
					}
				}
				if took := time.Since(began); took > 2*time.Minute {
					t.Errorf("recovery took %s", took)
				}
				w.eventually("all is done", time.Minute, func() bool { return counts(w.depth("g")) == "0 0 0 0 25" })
				if text := w.log.text(); !strings.Contains(text, "the circuit breaker of the group opened") || !strings.Contains(text, "the circuit breaker of the group closed") {
					t.Error("the log does not tell")
				}
				w.close(con)
			})
		})
	}
}

// TestRule_Breaker_SwitchedOffLive switches the open breaker off: attempts count from then on.
func TestRule_Breaker_SwitchedOffLive(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) { g.MaxDeliveries = 2 })
		w.publish(numbers(1, 60)...)
		con := w.consumer("g", client.Prefetch(60))
		nack := outages["they nack"]
		w.stop(con, nack, time.Minute)
		if n := w.letters("g"); n != 0 || w.depth("g").BreakerOpen == 0 {
			t.Fatalf("%d dead letters, %+v", n, w.depth("g"))
		}
		_, err := w.Client.Admin().UpdateGroup(w.t.Context(), core.GroupSpec{Queue: queue, Name: "g", Breaker: core.BreakerOff, NoNackThrottle: true})
		w.ok(err)
		w.stop(con, nack, 10*time.Second)
		if n := w.letters("g"); n != 60 {
			t.Errorf("%d dead letters, want all 60", n)
		}
		w.close(con)
	})
}

// TestRule_Breaker_TailOfPoison leaves nothing but what fails: it dies, at once and after exactly max deliveries.
func TestRule_Breaker_TailOfPoison(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) { g.MaxDeliveries = 5; g.NoNackThrottle = true })
		w.publish(numbers(0, 399)...)
		con := w.consumer("g", client.Prefetch(30))
		got := make(map[string]int)
		for d := w.take(con, 10*time.Second); d != nil; d = w.take(con, 10*time.Second) {
			if body := string(d.Body); strings.HasSuffix(body, "0") || strings.HasSuffix(body, "5") {
				got[body]++
				w.ok(d.Nack())
			} else {
				w.ok(d.Ack())
			}
		}
		if n := w.letters("g"); n != 80 || len(got) != 80 {
			t.Errorf("%d dead letters of %d bad messages, want 80", n, len(got))
		}
		for body, n := range got {
			if n != 5 {
				t.Errorf("%s was delivered %d times, want 5", body, n)
			}
		}
		w.close(con)
	})
}

// TestRule_NackThrottle_ConsumerThatOnlyNacks gets messages slower and slower while another one, of the same group,
// works on.
func TestRule_NackThrottle_ConsumerThatOnlyNacks(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) {
			g.MaxDeliveries, g.Breaker = core.UnlimitedDeliveries, core.BreakerOff
		})
		w.publish(numbers(1, 100)...)
		con := w.consumer("g", client.Prefetch(100))
		nack := outages["they nack"]
		first, second := w.stop(con, nack, 10*time.Second), w.stop(con, nack, 10*time.Second)
		w.stop(con, nack, 20*time.Second)
		last := w.stop(con, nack, 10*time.Second)
		if first <= second || last > second+10 || last > 40 || last == 0 {
			t.Errorf("it got %d messages in 10 s, then %d, at last %d", first, second, last)
		}
		other := w.consumer("g", client.Prefetch(100))
		if n := len(w.collect(other, 80)); n < 80 {
			t.Errorf("the other got %d messages", n)
		}
		w.close(other)
		w.publish(numbers(101, 200)...)
		w.ok(w.take(con, time.Minute).Ack())
		began := time.Now()
		for range 50 {
			if d := w.take(con, time.Second); d == nil {
				t.Fatalf("after an ack it is still slow: %s", time.Since(began))
			} else {
				w.ok(d.Ack())
			}
		}
		w.close(con)
	})
}

// TestBreaker_OpenForAMomentIsNotLogged has one breaker be open for milliseconds, and another one for long.
func TestBreaker_OpenForAMomentIsNotLogged(t *testing.T) {
	for _, pause := range []time.Duration{0, 10 * time.Second} {
		bubble(t, Options{}, func(w *world) {
			w.group("g", func(g *core.GroupSpec) { g.LockTimeout = time.Minute })
			w.publish(numbers(1, 40)...)
			con := w.consumer("g", client.Prefetch(40))
			var held []*client.Delivery
			for range 40 {
				held = append(held, w.take(con, time.Minute))
			}
			for _, d := range held[:30] {
				w.ok(d.Nack(client.After(5 * time.Minute)))
			}
			w.ok(con.Flush(w.t.Context()))
			sleep(pause)
			w.ok(held[30].Ack())
			w.ok(con.Flush(w.t.Context()))
			sleep(2 * time.Second)
			if said := strings.Contains(w.log.text(), "the circuit breaker of the group opened"); said != (pause > 0) {
				t.Errorf("open for %s: logged %t", pause, said)
			}
			w.close(con)
		})
	}
}
