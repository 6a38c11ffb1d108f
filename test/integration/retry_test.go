package integration

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/test/process"
)

func TestNackWithDelayComesBackThen(t *testing.T) {
	const delay = 4 * time.Second // more than the server takes to start again
	crashing(t, func(w *world, crash func()) {
		w.group("g", nil)
		w.publish("a")
		con := w.consumer("g")
		d := w.next(con, "a", 1)
		start := time.Now()
		w.settle(d.Nack(client.After(delay), client.Reason("later")))
		w.counted("g", "nacked", 1)
		crash()
		w.settle(w.next(con, "a", 2).Ack())
		w.after("it came back", start, delay)
	})
}

// TestNackForgottenByCrash kills the server before the nack can have been saved: the message comes again, when its
// delay or its lock is over or at once, and is not lost.
func TestNackForgottenByCrash(t *testing.T) {
	w := newWorld(t)
	w.group("g", func(g *core.GroupSpec) { g.LockTimeout = 2 * time.Second })
	w.publish("a")
	con := w.consumer("g")
	d := w.next(con, "a", 1)
	w.settle(d.Nack(client.After(3 * time.Second)))
	w.flush(con)
	w.server.Restart()
	again := w.take(con, process.Patience)
	if again == nil || string(again.Body) != "a" || again.Attempt > 2 {
		t.Fatalf("got %+v, want the message with attempt 1 or 2", again)
	}
	w.settle(again.Ack())
}

func TestLockEndsAfterItsTimeout(t *testing.T) {
	const lock = 3 * time.Second
	crashing(t, func(w *world, crash func()) {
		w.group("g", func(g *core.GroupSpec) { g.LockTimeout = lock })
		w.publish("a")
		con := w.consumer("g")
		before := time.Now()
		w.next(con, "a", 1)
		crash()
		w.settle(w.next(con, "a", 2).Ack())
		w.after("it came back", before, lock)
		w.counted("g", "acked", 1)
		w.none(con, lock+500*time.Millisecond)
	})
}

func TestExhaustedIsDeadAfterExactlyMaxDeliveries(t *testing.T) {
	const most = 3
	crashing(t, func(w *world, crash func()) {
		w.group("g", func(g *core.GroupSpec) { g.MaxDeliveries = most; g.LockTimeout = 5 * time.Second })
		w.publish("a")
		con := w.consumer("g")
		for attempt := 1; attempt <= most; attempt++ {
			d := w.next(con, "a", attempt)
			// With a delay, so that the next attempt is not on its way to the consumer while the server dies.
			w.settle(d.Nack(client.After(4*time.Second), client.Reason(fmt.Sprintf("failure %d", attempt))))
			if attempt < most {
				w.counted("g", "nacked", 1)
			} else {
				w.counted("g", "dead_lettered", 1) // else it may be buried twice
			}
			crash()
		}
		l := w.letters("g", 1)[0]
		if l.Attempts != most || l.Reason != "nack" || l.Error != "failure 3" || l.Payload != "a" {
			w.t.Errorf("dead letter %+v, want 3 attempts and the last failure", l)
		}
		w.none(con, time.Second)
	})
}

// TestExhaustedBlock has an exhausted message wait, while others go on, until the group allows another attempt.
func TestExhaustedBlock(t *testing.T) {
	const most = 2
	crashing(t, func(w *world, crash func()) {
		w.group("g", func(g *core.GroupSpec) { g.MaxDeliveries = most; g.Exhausted = core.ExhaustedBlock })
		w.publish("a")
		con := w.consumer("g")
		for attempt := 1; attempt <= most; attempt++ {
			w.settle(w.next(con, "a", attempt).Nack(client.After(time.Second)))
		}
		w.flush(con)
		process.Eventually(w.t, "the message to be blocked", func() bool { return w.depth("g") == depth{Blocked: 1} })
		crash()
		w.publish("b")
		w.settle(w.next(con, "b", 1).Ack())
		w.none(con, 2*time.Second)
		w.letters("g", 0)
		process.Eventually(w.t, "the blocked message to wait", func() bool { return w.depth("g") == depth{Blocked: 1} })
		w.server.Must("", "update", "group", queue, "g", "--max-deliveries", strconv.Itoa(most+1))
		w.settle(w.next(con, "a", most+1).Ack())
		process.Eventually(w.t, "nothing to be left", func() bool { return w.depth("g") == depth{} })
	})
}

// TestExhaustedBlockEndsByUpdate turns a group that blocks to one with dead letters, by the command line.
func TestExhaustedBlockEndsByUpdate(t *testing.T) {
	w := newWorld(t)
	w.server.Must("", "create", "group", queue, "g", "--start", "earliest", "--max-deliveries", "1", "--exhausted", "block")
	w.publish("a", "b")
	con := w.consumer("g")
	for range 2 {
		d := w.take(con, process.Patience)
		if d == nil {
			t.Fatal("a message did not come")
		}
		w.settle(d.Nack(client.Reason("no")))
	}
	w.flush(con)
	process.Eventually(t, "two messages to be blocked", func() bool { return w.depth("g") == depth{Blocked: 2} })
	w.server.Must("", "update", "group", queue, "g", "--exhausted", "dlq")
	for _, l := range w.letters("g", 2) {
		if l.Attempts != 1 || l.Error != "no" {
			t.Errorf("dead letter %+v, want 1 attempt and its reason", l)
		}
	}
	process.Eventually(t, "nothing to be left", func() bool { return w.depth("g") == depth{} })
}

// TestExhaustedWithCrashesAnywhere kills the server at once after each failure. A first attempt may be forgotten once
// per crash. Later attempts have their number before they are handed out. One that a crash interrupts does not count,
// at most three times.
func TestExhaustedWithCrashesAnywhere(t *testing.T) {
	const most, crashes = 5, 4
	w := newWorld(t)
	w.group("g", func(g *core.GroupSpec) { g.MaxDeliveries = most; g.LockTimeout = time.Second })
	w.publish("a")
	con := w.consumer("g")
	var seen []int
	for len(seen) <= most+crashes {
		d := w.take(con, 10*time.Second)
		if d == nil {
			break // it is dead
		}
		seen = append(seen, d.Attempt)
		w.settle(d.Nack(client.Reason("no")))
		w.flush(con)
		if len(seen) <= crashes && d.Attempt < most { // after the last one a crash has the dead letter looked for, a minute later
			w.server.Restart()
		}
	}
	for i, n := range seen {
		if i > 0 && (n < seen[i-1] || n > 1 && n == seen[i-1]) {
			t.Errorf("attempts %v: they have to grow, but for a forgotten first one", seen)
		}
	}
	if l := w.letters("g", 1)[0]; l.Attempts < most || l.Attempts > most+3 || len(seen) > most+crashes || len(seen) > l.Attempts+crashes {
		t.Errorf("dead letter %+v after the attempts %v, want %d attempts, and up to 3 more that do not count", l, seen, most)
	}
	w.none(con, 1500*time.Millisecond)
}

// TestCrashesUseUpNoAttempts kills the server again and again while a message that has failed once waits for a
// consumer: only what is handed out counts.
func TestCrashesUseUpNoAttempts(t *testing.T) {
	w := newWorld(t)
	w.group("g", func(g *core.GroupSpec) { g.LockTimeout = time.Second; g.MaxDeliveries = 4 })
	w.publish("a")
	con := w.consumer("g")
	w.settle(w.next(con, "a", 1).Nack(client.After(500*time.Millisecond), client.Reason("no")))
	w.counted("g", "nacked", 1)
	closeConsumer(con)
	for range 3 {
		w.crash()
		pause(time.Second)
	}
	w.settle(w.next(w.consumer("g"), "a", 2).Ack())
	w.letters("g", 0)
}
