package cluster

import (
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// TestRule_Isolation has a worker hang with all that it holds, because of one message. All get their last attempts
// alone, so that one dies, and no other. While both workers hold something else why-stuck says what is waited for, and
// other messages come.
func TestRule_Isolation(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		const lock = 8 * time.Second
		w.group("g", func(g *core.GroupSpec) { g.LockTimeout, g.MaxDeliveries = lock, 2 })
		con := w.consumer("g")
		bodies := []string{"a", "b", "poison", "d", "e"}
		receipts := w.receipts(bodies...)
		for _, b := range bodies {
			w.next(con, b, 1)
		}
		sleep(lock - time.Second)
		w.publish("busy")
		busy := []*client.Delivery{w.next(con, "busy", 1), nil}
		other := w.consumer("g")
		for i := 0; busy[1] == nil && i < 10; i++ {
			w.publish("busy too")
			if busy[1] = w.take(other, 10*time.Millisecond); busy[1] == nil {
				w.ok(w.next(con, "busy too", 1).Ack())
			}
		}
		sleep(2 * time.Second)
		if m := w.stuck("g", "isolated").Message; !names(m, receipts[0]) || m.State != "ready" || m.LastFailure != "lock_timeout" {
			t.Errorf("held up by %+v, want %s", m, receipts[0])
		}
		w.publish("good")
		good := w.take(con, time.Second)
		if good == nil {
			good = w.take(other, time.Second)
		}
		if good == nil || string(good.Body) != "good" {
			t.Fatalf("beside busy workers came %v, want the good one", good)
		}
		for _, d := range append(busy, good) {
			w.ok(d.Ack())
		}
		done := map[string]bool{}
		var holds *client.Consumer // poison
		for range 20 {
			for _, c := range []*client.Consumer{con, other} {
				d := w.take(c, 100*time.Millisecond)
				if d == nil {
					continue
				}
				body := string(d.Body)
				if d.Attempt != 2 || done[body] || c == holds {
					t.Errorf("%q came as attempt %d, after %v, beside poison: %v", body, d.Attempt, done, c == holds)
				}
				if done[body] = true; body == "poison" {
					holds = c
					continue
				}
				w.ok(d.Ack())
			}
		}
		if len(done) != len(bodies) {
			t.Errorf("%v came again, want all of %v", done, bodies)
		}
		sleep(lock + 10*time.Second)
		for l, err := range w.Client.Admin().DeadLetters(w.t.Context(), queue, "g") {
			w.ok(err)
			if string(l.Message.Body) != "poison" || l.Attempts != 2 {
				t.Errorf("%q is a dead letter after %d attempts", l.Message.Body, l.Attempts)
			}
		}
		if n := w.letters("g"); n != 1 {
			t.Errorf("%d dead letters, want one", n)
		}
		w.close(con)
		w.close(other)
	})
}
