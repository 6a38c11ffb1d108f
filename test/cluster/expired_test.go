package cluster

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// TestExpired_DeadLettered has messages expire before their first and before their second delivery, from the log and
// from timers, in a group that drops them, until it is told to keep them as dead letters, while it runs. The output
// host is killed before they are written. They are consumed from there, and merged.
func TestExpired_DeadLettered(t *testing.T) {
	bubble(t, Options{Stores: 2}, func(w *world) {
		admin := w.Client.Admin()
		w.group("g", nil)
		w.group("sift", nil)
		con := w.consumer("g")
		p := w.publisher()
		say := func(body string, delay, life time.Duration) {
			w.t.Helper()
			_, err := p.Publish(w.t.Context(), client.Message{Body: []byte(body), Delay: delay, ExpireAt: time.Now().Add(life)})
			w.ok(err)
		}
		say("dropped", 0, time.Second)
		w.ok(w.next(con, "dropped", 1).Nack(client.After(3 * time.Second)))
		time.Sleep(5 * time.Second)
		_, err := admin.UpdateGroup(w.t.Context(), core.GroupSpec{Queue: queue, Name: "g", Expired: core.ExpiredDLQ}, "expired")
		w.ok(err)
		time.Sleep(5 * time.Second)
		say("seen", 0, 2*time.Second)
		w.ok(w.next(con, "seen", 1).Nack(client.After(5*time.Second), client.Reason("busy")))
		w.ok(con.Flush(w.t.Context()))
		w.close(con)
		say("unseen", 0, 4*time.Second)
		say("timer", 3*time.Second, 4*time.Second)
		synctest.Wait()
		time.Sleep(2 * time.Second)
		w.Crash(Output)
		w.Up(Output)
		time.Sleep(5 * time.Second)
		con = w.consumer("g")
		letters := make(map[string]client.DeadLetter)
		w.eventually("they are dead letters", 30*time.Second, func() bool {
			for d, err := range admin.DeadLetters(w.t.Context(), queue, "g") {
				w.ok(err)
				letters[string(d.Message.Body)] = d
			}
			return len(letters) == 3
		})
		for body, attempts := range map[string]int{"seen": 1, "unseen": 0, "timer": 0} {
			if d := letters[body]; d.Reason != "expired" || d.Attempts != attempts || !d.Message.ExpireAt.IsZero() {
				w.t.Errorf("%s is %+v", body, d)
			}
		}
		if d := w.depth("g"); counts(d) != "0 0 0 0 3" {
			w.t.Errorf("left are %s", counts(d))
		}
		if d := w.depth("sift"); d.Dead != 0 {
			w.t.Errorf("another group has %d dead letters", d.Dead)
		}
		_, err = admin.CreateGroup(w.t.Context(), core.GroupSpec{Queue: core.DLQPath(queue, "g"), Name: "look", Start: core.Start{Mode: core.StartEarliest}})
		w.ok(err)
		look, err := w.Client.Consumer(w.t.Context(), core.DLQPath(queue, "g"), "look")
		w.ok(err)
		if got := w.collect(look, 3); len(got) != 3 {
			w.t.Errorf("from the dead letter queue came %v", got)
		}
		w.close(look)
		_, err = admin.MergeDeadLetters(w.t.Context(), queue, "g", 0)
		w.ok(err)
		if got := w.collect(con, 3); len(got) != 3 || got["dropped"] > 0 {
			w.t.Errorf("merged came %v", got)
		}
		w.close(con)
	})
}
