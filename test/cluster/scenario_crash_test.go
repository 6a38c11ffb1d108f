package cluster

import (
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
)

// consumerAction is what the consumer of a group does with each message right before its output host dies.
type consumerAction struct {
	group string
	most  int                          // max deliveries
	dead  bool                         // the message becomes a dead letter
	do    func(*client.Delivery) error // nil: nothing; the consumer holds it
}

var consumerActions = []consumerAction{
	{group: "unseen", most: 3},
	{group: "held", most: 3},
	{group: "acked", most: 3, do: func(d *client.Delivery) error { return d.Ack() }},
	{group: "nacked", most: 3, do: func(d *client.Delivery) error { return d.Nack() }},
	{group: "nacked-5s", most: 3, do: func(d *client.Delivery) error { return d.Nack(client.After(5 * time.Second)) }},
	{group: "nacked-40s", most: 3, do: func(d *client.Delivery) error { return d.Nack(client.After(40 * time.Second)) }},
	{group: "new-metadata", most: 3, do: func(d *client.Delivery) error { return d.Nack(client.Metadata([]byte("m"))) }},
	{group: "extended", most: 3, do: func(d *client.Delivery) error { return d.Extend(20 * time.Second) }},
	{group: "rejected", most: 3, dead: true, do: func(d *client.Delivery) error { return d.Reject("no") }},
	{group: "exhausted", most: 1, dead: true, do: func(d *client.Delivery) error { return d.Nack() }},
}

// TestScenario_CrashWithinASecond kills the output host within a second of everything that consumers do: no message is
// lost, only rejected and exhausted ones are dead letters, each once, and none is delivered more often than max
// deliveries and once more for the crash.
func TestScenario_CrashWithinASecond(t *testing.T) {
	for _, after := range []time.Duration{0, 50 * time.Millisecond, 150 * time.Millisecond, 500 * time.Millisecond, time.Second} {
		t.Run(after.String(), func(t *testing.T) {
			underrace.One(t, after == 150*time.Millisecond)
			bubble(t, Options{}, func(w *world) { w.crashAfterActions(after) })
		})
	}
}

func (w *world) crashAfterActions(after time.Duration) {
	bodies := numbers(1, 20)
	for _, x := range consumerActions {
		w.group(x.group, func(g *core.GroupSpec) {
			g.LockTimeout, g.MaxDeliveries, g.Breaker, g.NoNackThrottle = 10*time.Second, x.most, core.BreakerOff, true
		})
	}
	w.publish(bodies...)
	cons := make([]*client.Consumer, len(consumerActions))
	groups := make([]*deliveries, len(consumerActions))
	held := make([][]*client.Delivery, len(consumerActions))
	for i, x := range consumerActions {
		cons[i], groups[i] = w.consumer(x.group, client.Prefetch(len(bodies))), w.deliveries()
		for range bodies {
			if x.group == "unseen" {
				continue
			}
			d := w.take(cons[i], time.Second)
			if d == nil {
				w.t.Fatalf("group %s got %d of %d messages", x.group, len(held[i]), len(bodies))
			}
			groups[i].note(d)
			held[i] = append(held[i], d)
		}
	}
	for i, x := range consumerActions {
		for _, d := range held[i] {
			if x.do != nil {
				w.ok(x.do(d))
			}
			if x.group == "acked" {
				groups[i].acked[string(d.Body)] = time.Now()
			}
		}
		w.ok(cons[i].Flush(w.t.Context()))
	}
	sleep(after)
	for i := range groups {
		groups[i].crashes = append(groups[i].crashes, time.Now())
	}
	w.Crash(Output)
	w.Up(Output)
	for last := time.Now(); time.Since(last) < 2*time.Minute; {
		for i, x := range consumerActions {
			d := w.take(cons[i], 20*time.Millisecond)
			switch {
			case d == nil:
				continue
			case x.dead:
				groups[i].note(d)
				w.ok(x.do(d))
			default:
				groups[i].note(d)
				groups[i].ack(d)
			}
			last = time.Now()
		}
	}
	for i, x := range consumerActions {
		w.checkAction(x, groups[i], bodies)
		w.close(cons[i])
	}
}

func (w *world) checkAction(x consumerAction, g *deliveries, bodies []string) {
	var dead []string
	given := 0
	for _, body := range bodies {
		if x.dead {
			dead = append(dead, body)
		} else if g.acked[body].IsZero() {
			w.t.Errorf("group %s: %s was not acked", x.group, body)
		}
		given += g.count[body]
		if n := g.count[body]; n > x.most+1 {
			w.t.Errorf("group %s: %s was delivered %d times", x.group, body, n)
		}
	}
	w.t.Logf("group %s: %d deliveries of %d messages", x.group, given, len(bodies))
	w.equal("dead letters of group "+x.group, w.listed(x.group), dead)
	if d := w.depth(x.group); d.Ready+d.InFlight+d.Delayed+d.Blocked > 0 {
		w.t.Errorf("group %s: depth %+v, want nothing left", x.group, d)
	}
}

// TestScenario_CrashBeforeTheLastAttempt kills the output host while messages that have failed once wait for credit.
// They may be delivered twice, and were delivered once: none is dead after the crash, and each gets its last attempt.
func TestScenario_CrashBeforeTheLastAttempt(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) {
			g.LockTimeout, g.MaxDeliveries, g.Breaker, g.NoNackThrottle = 10*time.Second, 2, core.BreakerOff, true
		})
		bodies := numbers(1, 100)
		w.publish(bodies...)
		con := w.consumer("g", client.Limit(len(bodies))) // it stays, and asks for no more
		for range bodies {
			w.ok(w.take(con, time.Minute).Nack(client.Reason("busy")))
		}
		w.ok(con.Flush(w.t.Context()))
		sleep(3 * time.Second)
		if d := w.depth("g"); d.Ready != uint64(len(bodies)) {
			t.Fatalf("depth %+v, want %d ready", d, len(bodies))
		}
		w.Crash(Output)
		w.Up(Output)
		other := w.consumer("g")
		got := w.collect(other, len(bodies))
		sleep(time.Minute)
		t.Logf("%d messages got their last attempt, %d are dead letters", len(got), w.letters("g"))
		w.all(got, bodies, true)
		if n := w.letters("g"); n != 0 {
			t.Errorf("%d messages are dead letters, and were delivered once of two times", n)
		}
		w.close(other)
		w.close(con)
	})
}
