package integration

import (
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/test/process"
)

// depth is a line of `columba depth -o json`.
type depth struct {
	Ready    uint64
	InFlight uint64 `json:"in_flight"`
	Delayed  uint64
	Blocked  uint64
	Unknown  uint64 `json:"unknown_extents"` // more than 0: the others may be too low
}

func (w *world) depth(group string) depth {
	w.t.Helper()
	return process.Decode[depth](w.t, w.server.Ask("depth", queue, group, "-o", "json"))[0]
}

func TestGroupDelay(t *testing.T) {
	const delay = 5 * time.Second
	crashing(t, func(w *world, crash func()) {
		w.group("g", func(g *core.GroupSpec) { g.Delay = delay })
		con := w.consumer("g")
		before := time.Now()
		w.publish("a")
		crash()
		d := w.next(con, "a", 1)
		w.after("it came", before, delay)
		w.settle(d.Nack())
		w.settle(w.next(con, "a", 2).Ack())
	})
}

// TestGroupDelayFollowsUpdates takes the delay of a running group away and sets it again, by the command line.
func TestGroupDelayFollowsUpdates(t *testing.T) {
	w := newWorld(t)
	w.server.Must("", "create", "group", queue, "g", "--start", "earliest", "--delay", "1h")
	w.publish("a", "b")
	con := w.consumer("g")
	w.none(con, time.Second)
	process.Eventually(t, "two delayed messages", func() bool { return w.depth("g") == depth{Delayed: 2} })
	w.server.Must("", "update", "group", queue, "g", "--delay", "0s")
	for range 2 {
		d := w.take(con, process.Patience)
		if d == nil {
			t.Fatal("the delay was taken away, and a message did not come")
		}
		w.settle(d.Ack())
	}
	w.server.Must("", "update", "group", queue, "g", "--delay", "1h")
	process.Eventually(t, "the delay is there again", func() bool {
		w.publish("c")
		d := w.take(con, time.Second)
		if d != nil {
			w.settle(d.Ack())
		}
		return d == nil && w.depth("g").Delayed > 0
	})
}

// TestSkipOlder has a group get only what is young enough, also what it did not take in time; a retry bypasses the
// rule.
func TestSkipOlder(t *testing.T) {
	const most = 5 * time.Second
	crashing(t, func(w *world, crash func()) {
		w.publish(numbers(0, 100)...)
		pause(most + 100*time.Millisecond)
		w.group("g", func(g *core.GroupSpec) { g.SkipOlder = most; g.LockTimeout = time.Minute })
		w.publish("100")
		con := w.consumer("g")
		w.settle(w.next(con, "100", 1).Nack(client.After(most + 500*time.Millisecond)))
		w.counted("g", "nacked", 1)
		crash()
		w.settle(w.next(con, "100", 2).Ack())
		closeConsumer(con)
		w.publish("101")
		pause(most + 500*time.Millisecond)
		con = w.consumer("g")
		w.publish("102")
		w.settle(w.next(con, "102", 1).Ack())
		w.none(con, 300*time.Millisecond)
		process.Eventually(w.t, "nothing to be left", func() bool { return w.depth("g") == depth{} })
	})
}

// TestSkipOlderFollowsUpdates sets the age of a running group by the command line.
func TestSkipOlderFollowsUpdates(t *testing.T) {
	w := newWorld(t)
	w.group("g", func(g *core.GroupSpec) { g.Delay = time.Hour })
	w.publish(numbers(0, 10)...)
	con := w.consumer("g")
	process.Eventually(t, "the messages to be read", func() bool { return w.depth("g") == depth{Delayed: 10} })
	pause(time.Second)
	w.server.Must("", "update", "group", queue, "g", "--delay", "0s", "--skip-older", "1s")
	process.Eventually(t, "the messages to be skipped", func() bool { return w.depth("g") == depth{} })
	w.none(con, 100*time.Millisecond)
	w.server.Must("", "update", "group", queue, "g", "--skip-older", "0s")
	pause(3 * time.Second) // running groups follow within seconds
	w.publish("10")
	w.settle(w.next(con, "10", 1).Ack())
}

func TestExpireAt(t *testing.T) {
	const life = 4 * time.Second
	crashing(t, func(w *world, crash func()) {
		w.group("g", func(g *core.GroupSpec) { g.MaxDeliveries = 3 })
		con := w.consumer("g")
		w.send(client.Message{Body: []byte("a"), ExpireAt: time.Now().Add(life)})
		w.settle(w.next(con, "a", 1).Nack(client.After(life)))
		w.counted("g", "nacked", 1)
		crash()
		closeConsumer(con)
		w.send(client.Message{Body: []byte("b"), ExpireAt: time.Now().Add(500 * time.Millisecond)}, client.Message{Body: []byte("c"), ExpireAt: time.Now().Add(time.Hour)})
		pause(time.Second)
		con = w.consumer("g")
		w.settle(w.next(con, "c", 1).Ack())
		w.none(con, life)
		process.Eventually(w.t, "nothing to be left", func() bool { return w.depth("g") == depth{} })
		w.letters("g", 0)
	})
}
