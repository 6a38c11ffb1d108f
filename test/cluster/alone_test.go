package cluster

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// TestRule_Alone has a worker hang with all that it holds, because of one message. All get their last attempts alone, so that one dies, and no other; while the
// worker holds something else why-stuck says what is waited for.
func TestRule_Alone(t *testing.T) {
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
		busy := w.next(con, "busy", 1)
		sleep(2 * time.Second)
		if m := w.stuck("g", "isolated").Message; !names(m, receipts[0]) || m.State != "ready" || m.LastFailure != "lock_timeout" {
			t.Errorf("held up by %+v, want %s", m, receipts[0])
		}
		if d := w.take(con, 4*time.Second); d != nil {
			t.Errorf("%q came beside another message", d.Body)
		}
		w.ok(busy.Ack())
		done := map[string]bool{}
		for len(done) < len(bodies) {
			d := w.take(con, lock+5*time.Second)
			if d == nil {
				t.Fatalf("nothing came after %v", done)
			}
			body := string(d.Body)
			if d.Attempt != 2 || done[body] {
				t.Errorf("%q came as attempt %d, after %v", body, d.Attempt, done)
			}
			done[body] = true
			if x := w.take(con, time.Second); x != nil {
				t.Errorf("%q came beside %q", x.Body, body)
			}
			if body != "poison" {
				w.ok(d.Ack())
			}
		}
		sleep(lock + 5*time.Second)
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
	})
}
