package integration

import (
	"bytes"
	"maps"
	"strconv"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/test/process"
)

// TestDeadLetterKeepsItsMessage compares a dead letter with the message it was, in the list and as a queue's message.
func TestDeadLetterKeepsItsMessage(t *testing.T) {
	crashing(t, func(w *world, crash func()) {
		w.group("g", nil)
		headers := map[string]string{"source": "import", "empty": "", "ümlaut": "ß"}
		m := client.Message{Body: []byte{0, 1, 0xff, '\n', 0}, Key: "rider-7", Headers: headers}
		receipt := w.send(m)[0]
		con := w.consumer("g")
		d := w.take(con, 10*time.Second)
		w.settle(d.Reject("not a trip"))
		l := w.letters("g", 1)[0]
		w.counted("g", "dead_lettered", 1)
		crash()
		if again := w.letters("g", 1)[0]; again.ID != l.ID || again.Receipt != l.Receipt || again.FirstEnqueued != l.FirstEnqueued {
			w.t.Errorf("the dead letter is %+v after the crash, was %+v", again, l)
		}
		if l.ID != receipt.ID.String() || l.Origin != receipt.Receipt.String() || !bytes.Equal(l.PayloadBase64, m.Body) || l.Key != m.Key || !maps.Equal(l.Headers, headers) {
			w.t.Errorf("dead letter %+v is not what was published as %v", l, receipt)
		}
		if l.Attempts != 1 || l.Reason != "rejected" || l.Error != "not a trip" || l.LastConsumer == "" {
			w.t.Errorf("dead letter %+v does not say why", l)
		}
		if want := d.Enqueued.UTC().Format("2006-01-02T15:04:05.000Z"); l.FirstEnqueued != want {
			w.t.Errorf("first enqueued %s, want %s", l.FirstEnqueued, want)
		}
		w.peekDead(receipt, m)
	})
}

// peekDead reads the dead letter queue as any queue.
func (w *world) peekDead(receipt client.Receipt, m client.Message) {
	w.t.Helper()
	n := 0
	for d, err := range w.client.Admin().Peek(w.t.Context(), core.DLQPath(queue, "g")) {
		if err != nil {
			w.t.Fatal(err)
		}
		n++
		if got := d.Message; got.ID != receipt.ID || !bytes.Equal(got.Body, m.Body) || got.Key != m.Key || !maps.Equal(got.Headers, m.Headers) {
			w.t.Errorf("the queue of dead letters has %+v", d)
		}
	}
	if n != 1 {
		w.t.Errorf("the queue of dead letters has %d messages", n)
	}
}

// TestDeadLettersOnce lets many messages die across kills: each is listed once, with its own origin.
func TestDeadLettersOnce(t *testing.T) {
	const n = 300
	w := newWorld(t)
	w.group("g", func(g *core.GroupSpec) {
		g.MaxDeliveries = 2
		g.LockTimeout = 2 * time.Second
		g.Breaker, g.NoNackThrottle = core.BreakerOff, true
	})
	w.publish(numbers(1, n)...)
	con := w.consumer("g")
	for i := range 2 {
		for range n / 2 {
			if d := w.take(con, 5*time.Second); d != nil {
				w.settle(d.Nack(client.Reason("no")))
			}
		}
		w.flush(con)
		if i == 0 {
			w.server.Restart()
		}
	}
	seen := map[string]int{}
	for len(seen) < n {
		if d := w.take(con, 3*time.Second); d != nil {
			w.settle(d.Nack(client.Reason("no")))
			continue
		}
		clear(seen)
		for d, err := range w.client.Admin().DeadLetters(t.Context(), queue, "g") {
			if err != nil {
				t.Fatal(err)
			}
			seen[d.Origin.String()]++
			if d.Attempts < 2 || d.Attempts > 3 { // the crash may have interrupted one, which does not count
				t.Errorf("%s has %d attempts, want 2 or 3", d.Origin, d.Attempts)
			}
		}
	}
	for origin, times := range seen {
		if times > 1 {
			t.Errorf("%s is dead %d times", origin, times)
		}
	}
	if len(seen) != n {
		t.Errorf("%d dead letters, want %d", len(seen), n)
	}
}

// TestDeadLetterKilledAtOnce kills the server as soon as a message is listed as a dead letter, and as soon as a purge
// is done: just after the restart it is listed once, and not at all after the purge, and it is not delivered again. The
// server looks for a dead letter whose append it does not know of only dispatch.TransferDoubt, a minute, later:
// test/cluster tests in virtual time (TestDead_OneOverCrashes) that it is not appended once more then.
func TestDeadLetterKilledAtOnce(t *testing.T) {
	w := newWorld(t)
	w.group("g", func(g *core.GroupSpec) { g.MaxDeliveries, g.Breaker = 2, core.BreakerOff })
	admin := w.client.Admin()
	con := w.consumer("g")
	for i, purged := 0, 0; i < 4; i++ {
		w.publish(strconv.Itoa(i))
		for range 2 {
			d := w.take(con, process.Patience)
			if d == nil || string(d.Body) != strconv.Itoa(i) {
				t.Fatalf("message %d: got %+v", i, d)
			}
			w.settle(d.Nack(client.Reason("no")))
			w.flush(con)
		}
		w.letters("g", i+1-purged)
		if i%2 == 1 {
			op, err := admin.PurgeDeadLetters(t.Context(), queue, "g")
			w.settle(err)
			_, err = admin.WaitOperation(t.Context(), op.ID)
			w.settle(err)
			purged = i + 1
		}
		w.server.Restart()
		w.none(con, 4*time.Second) // long enough for the consumer to be back
		if got := process.Decode[letter](t, w.server.Ask("dlq", "list", queue, "g", "-o", "json")); len(got) != i+1-purged {
			t.Fatalf("round %d: %d dead letters, want %d: %+v", i, len(got), i+1-purged, got)
		}
	}
}
