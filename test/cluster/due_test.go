package cluster

import (
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// dueUnread checks that a group has so many ready messages of an extent of delayed messages, the oldest due since a
// time, by its depth and by the list.
func (w *world) dueUnread(group string, ready, parked uint64, since time.Time) {
	w.t.Helper()
	d := w.depth(group)
	age := time.Since(since)
	if d.Ready != ready || d.DelayedRetry != parked || d.OldestReady < age-time.Second || d.OldestReady > age+time.Second {
		w.t.Errorf("group %s: %d ready, %d parked, the oldest ready since %s; want %d, %d, %s", group, d.Ready, d.DelayedRetry, d.OldestReady, ready, parked, age)
	}
	w.eventually("the list says so", dueFresh, func() bool {
		row := w.backlogs()[group]
		age, told := time.Since(since), time.Duration(row.OldestReadyMs)*time.Millisecond
		return row.Ready == ready && row.DelayedRetry == parked && told > age-fresh && told < age+fresh
	})
}

// TestCluster_DueMessagesOfNobodyAreReady has a parked and a delayed message become due in groups that nobody consumes
// for. Both count as ready, since they are due, also after the hosts started again; and why-stuck and the life of the
// parked one know its attempt.
func TestCluster_DueMessagesOfNobodyAreReady(t *testing.T) {
	bubble(t, Options{Stores: 2, Outputs: 1}, func(w *world) {
		w.group("parks", nil)
		at := w.receipts("a")[0]
		w.group("delays", func(g *core.GroupSpec) { g.Start = core.Start{Mode: core.StartLatest} })
		con := w.consumer("parks")
		d := w.next(con, "a", 1)
		first := d.Enqueued
		w.ok(d.Nack(client.After(31*time.Second), client.Reason("later")))
		w.eventually("it is parked", 5*time.Second, func() bool { return len(w.parked("parks")) == 1 })
		parked := w.parked("parks")[0]
		w.close(con)
		sleep(2*time.Minute + time.Until(parked.Due))
		w.dueUnread("parks", 1, 0, parked.Due)
		check := func() {
			t.Helper()
			why := w.stuck("parks", "no_consumer")
			if m := why.Message; m == nil || m.Attempts != 1 || m.LastFailure != "nack" || m.LastError != "later" || m.State != "unread" || !m.Enqueued.Equal(first) {
				t.Errorf("it is stuck by %+v, want the message enqueued %s after its nack", m, first)
			}
			for _, r := range []client.Receipt{at, {Receipt: parked.Receipt, ID: parked.ID}} {
				life, groups := w.life(r)
				if s := groups["parks"]; s.State != "unread" || s.Attempts != 1 || s.LastFailure != "nack" || s.LastError != "later" || !s.Enqueued.Equal(first) {
					t.Errorf("the life of %s is %+v in %+v", r.Receipt, s, life)
				}
			}
		}
		check()

		published := time.Now()
		w.publishLater(1, func() {}, 10*time.Second)
		sleep(time.Minute)
		w.dueUnread("delays", 1, 0, published.Add(10*time.Second))

		w.Crash(w.All()...)
		w.Up(w.All()...)
		sleep(20 * time.Second)
		w.dueUnread("delays", 1, 0, published.Add(10*time.Second))
		check()
	})
}

// TestWhyStuck_DueBehindOneThatIsNot has a message become due behind one of the same extent that waits for longer,
// while nobody consumes.
func TestWhyStuck_DueBehindOneThatIsNot(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", patient)
		at := w.receipts("a", "b")
		con := w.consumer("g")
		for _, wait := range []time.Duration{20 * time.Minute, 15 * time.Minute} {
			d := w.take(con, 10*time.Second)
			w.ok(d.Nack(client.After(wait)))
			sleep(2 * time.Second)
		}
		w.eventually("both are parked", 5*time.Second, func() bool { return len(w.parked("g")) == 2 })
		w.close(con)
		p := w.parked("g")
		if p[0].Receipt.Extent != p[1].Receipt.Extent || p[0].Due.Before(p[1].Due) {
			t.Fatalf("parked are %+v", p)
		}
		w.stuck("g", "nothing_waits")
		sleep(time.Minute + time.Until(p[1].Due))
		if m := w.stuck("g", "no_consumer").Message; m == nil || m.Receipt != p[1].Receipt || m.ID != at[1].ID || m.Attempts != 1 {
			t.Errorf("it is stuck by %+v, want %s", m, p[1].Receipt)
		}
	})
}
