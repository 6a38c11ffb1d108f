package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// TestPark_MeetsOthers: what is parked can be cancelled, expires into the dead letter queue, and comes to consumers
// that pull.
func TestPark_MeetsOthers(t *testing.T) {
	bubble(t, Options{Outputs: 2}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) { patient(g); g.Expired = core.ExpiredDLQ })
		w.group("other", nil)
		p := w.publisher()
		for _, m := range []client.Message{{Body: []byte("a")}, {Body: []byte("b"), ExpireAt: time.Now().Add(5 * time.Minute)}, {Body: []byte("c")}, {Body: []byte("d")}} {
			_, err := p.Publish(w.t.Context(), m)
			w.ok(err)
		}
		w.ok(p.Close(w.t.Context()))
		con := w.consumer("g")
		for range 4 {
			w.ok(w.take(con, time.Minute).Nack(client.After(10 * time.Minute)))
		}
		w.eventually("all are parked", 10*time.Second, func() bool { return len(w.parked("g")) == 4 })
		w.close(con)
		all := w.parked("g")
		slices.SortFunc(all, func(a, b client.DelayedMessage) int { return int(a.Origin.Seq) - int(b.Origin.Seq) })
		results, err := w.Client.Cancel(w.t.Context(), core.RetryPath(queue, "g"), all[0].Receipt)
		w.ok(err)
		if len(results) != 1 || results[0].Err != nil || len(results[0].Groups) != 1 || results[0].Groups[0].Outcome != client.OutcomeCancelled {
			t.Fatalf("cancelled is %+v", results)
		}
		w.eventually("what was cancelled is not parked", 3*time.Second, func() bool { return len(w.parked("g")) == 3 && w.places("g") == "0 0 0 3 0" })
		w.seek("g", core.Start{Mode: core.StartLatest})
		w.eventually("nor after the group was sent elsewhere", 10*time.Second, func() bool { return len(w.parked("g")) == 3 && w.places("g") == "0 0 0 3 0" })
		sleep(10 * time.Minute)
		got := make(map[string]bool)
		for range 20 {
			pulled, err := w.Client.Pull(w.t.Context(), queue, "g", 10, 0)
			w.ok(err)
			for _, m := range pulled {
				if m.Attempt != 2 || got[string(m.Message.Body)] {
					t.Errorf("%s came as attempt %d", m.Message.Body, m.Attempt)
				}
				got[string(m.Message.Body)] = true
				failed, err := w.Client.Ack(w.t.Context(), m.Token)
				if err != nil || len(failed) > 0 {
					t.Errorf("ack: %v, %v", err, failed)
				}
			}
			sleep(time.Second)
		}
		if len(got) != 2 || !got["c"] || !got["d"] {
			t.Errorf("came: %v", got)
		}
		w.eventually("what expired is a dead letter, and nothing is left", 30*time.Second, func() bool { return w.places("g") == "0 0 0 0 1" })
		for l, err := range w.Client.Admin().DeadLetters(w.t.Context(), queue, "g") {
			w.ok(err)
			if string(l.Message.Body) != "b" || l.Reason != "expired" || l.Attempts != 1 {
				t.Errorf("the dead letter is %+v", l)
			}
		}
	})
}

// TestPark_SeekCarriesWhatIsDone sends a group back again and again: what was parked and is done does not come once
// more.
func TestPark_SeekCarriesWhatIsDone(t *testing.T) {
	bubble(t, Options{Outputs: 2}, func(w *world) {
		w.group("g", patient)
		w.publish(numbers(1, 30)...)
		con := w.consumer("g", client.Prefetch(30))
		for range 30 {
			w.ok(w.take(con, time.Minute).Nack(client.After(time.Minute)))
		}
		w.eventually("all are parked", 10*time.Second, func() bool { return len(w.parked("g")) == 30 })
		var held []*client.Delivery
		for range 30 {
			held = append(held, w.take(con, 2*time.Minute))
		}
		for i, d := range held {
			if i%3 > 0 {
				w.ok(d.Ack())
			}
		}
		sleep(3 * time.Second)
		w.seek("g", core.Start{Mode: core.StartLatest})
		w.close(con)
		con = w.consumer("g", client.Prefetch(30))
		w.publish("new")
		seen := make(map[string]int)
		for d := w.take(con, 3*time.Minute); d != nil; d = w.take(con, 3*time.Minute) {
			seen[string(d.Body)] = d.Attempt
			w.ok(d.Ack())
		}
		for i, d := range held {
			if attempt := seen[string(d.Body)]; (i%3 == 0) != (attempt == 3) || i%3 > 0 && attempt > 0 {
				t.Errorf("%d: %s came as attempt %d", i, d.Body, attempt)
			}
		}
		if got := w.places("g"); got != "0 0 0 0 0" || seen["new"] != 1 {
			t.Errorf("depth %s, new: %d", got, seen["new"])
		}
		w.close(con)
	})
}
