package cluster

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// shownRow is a line of `columba depth -o json`.
type shownRow struct {
	Group string
	shownDepth
	Bytes uint64
}

// backlogs are the rows of all groups, as the controller has computed them.
func (w *world) backlogs() map[string]shownRow {
	w.t.Helper()
	out := make(map[string]shownRow)
	for line := range strings.Lines(w.columba("depth", "-o", "json")) {
		var r shownRow
		w.ok(json.Unmarshal([]byte(line), &r))
		out[r.Group] = r
	}
	return out
}

func (r shownRow) places() string {
	return fmt.Sprintf("%d %d %d %d %d %d", r.Ready, r.InFlight, r.Delayed-r.DelayedRetry, r.DelayedRetry, r.Blocked, r.Dead)
}

const (
	// fresh is how old a backlog may be.
	fresh = 15 * time.Second
	// dueFresh is how old it may be what of the delayed messages is due that nobody reads.
	dueFresh = 45 * time.Second
)

// agrees waits until the backlogs are what depth says, which may take as long as they may be old.
func (w *world) agrees(groups ...string) {
	w.t.Helper()
	var rows map[string]shownRow
	var row shownRow
	var want string
	for end := time.Now().Add(dueFresh); ; sleep(time.Second) {
		rows = w.backlogs()
		agree := len(rows) == len(groups)
		for _, g := range groups {
			d := w.depth(g)
			row, want = rows[g], fmt.Sprintf("%d %d %d %d %d %d", d.Ready, d.InFlight, d.Delayed-d.DelayedRetry, d.DelayedRetry, d.Blocked, d.Dead)
			age := time.Duration(row.OldestReadyMs) * time.Millisecond
			if row.places() != want || row.UnknownExtents != d.UnknownExtents || age > d.OldestReady+fresh || age < d.OldestReady-fresh {
				want += fmt.Sprintf(" of group %s, the oldest %s old, %d extents unknown", g, d.OldestReady, d.UnknownExtents)
				agree = false
				break
			}
		}
		if agree {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("ready, in flight, delayed, delayed by a retry, blocked, dead are %s, the oldest %d ms old, %d extents unknown; depth says %s (%d rows)",
				row.places(), row.OldestReadyMs, row.UnknownExtents, want, len(rows))
		}
	}
}

// TestCluster_BacklogAgreesWithDepth: messages in every state, for groups that are read, that never were, that begin
// late; while hosts die.
func TestCluster_BacklogAgreesWithDepth(t *testing.T) {
	bubble(t, Options{Stores: 3, Outputs: 2, Input: rollAt(3000)}, func(w *world) {
		w.group("busy", func(g *core.GroupSpec) { g.MaxDeliveries = 2; patient(g) })
		w.group("idle", nil)
		w.group("slow", func(g *core.GroupSpec) { g.Delay = time.Hour })
		for i := range 10 {
			w.publish(numbers(20*i+1, 20*i+20)...)
			sleep(500 * time.Millisecond)
		}
		w.group("late", func(g *core.GroupSpec) { g.Start = core.Start{Mode: core.StartLatest} })
		w.publishLater(8, func() {}, time.Hour)
		w.publishLater(2, func() {}, 40*time.Second)
		con := w.consumer("busy", client.Prefetch(10))
		for i := range 60 {
			d := w.take(con, 10*time.Second)
			switch {
			case i < 30:
				w.ok(d.Ack())
			case i < 40:
				w.ok(d.Nack(client.After(20 * time.Second)))
			case i < 47:
				w.ok(d.Nack(client.After(time.Hour)))
			case i < 50:
				w.ok(d.Reject("no"))
			}
		}
		w.ok(con.Flush(w.t.Context()))
		sleep(5 * time.Second)
		w.agrees("busy", "idle", "slow", "late")
		rows := w.backlogs()
		if d := rows["busy"]; len(w.parked("busy")) != 7 || d.DelayedRetry < 7 || d.Dead != 3 || d.InFlight == 0 || d.Ready+d.InFlight+d.Delayed != 177 {
			t.Errorf("busy: %+v", d)
		}
		if d := rows["idle"]; d.Ready != 200 || d.Delayed != 10 || d.Bytes == 0 {
			t.Errorf("idle: %+v", d)
		}
		if d := rows["late"]; d.Ready != 0 || d.Delayed != 10 {
			t.Errorf("late: %+v", d)
		}
		w.close(con)
		sleep(time.Minute) // some have become due meanwhile, and nobody reads
		w.agrees("busy", "idle", "slow", "late")

		w.Crash(Output)
		w.publish(numbers(201, 220)...)
		sleep(20 * time.Second)
		w.agrees("busy", "idle", "slow", "late")
		w.Crash(Controller)
		w.Up(Controller)
		sleep(20 * time.Second)
		w.agrees("busy", "idle", "slow", "late")
		w.Crash(Store(0))
		w.publish(numbers(221, 240)...)
		sleep(20 * time.Second)
		w.agrees("busy", "idle", "slow", "late")
		if d := w.backlogs()["idle"]; d.Ready+d.Delayed != 250 {
			t.Errorf("at the end idle has %+v", d)
		}
	})
}

// TestCluster_BacklogWithoutOutputHosts: nobody owns a share, and all is counted by checkpoints.
func TestCluster_BacklogWithoutOutputHosts(t *testing.T) {
	bubble(t, Options{Outputs: 1, Input: rollAt(2000)}, func(w *world) {
		w.group("g", nil)
		w.group("idle", nil)
		w.publish(numbers(1, 100)...)
		con := w.consumer("g", client.Prefetch(1))
		for range 30 {
			w.ok(w.take(con, 10*time.Second).Ack())
		}
		w.close(con)
		sleep(3 * time.Second)
		w.Crash(Output)
		w.publish(numbers(101, 150)...)
		sleep(fresh)
		total := func(r shownRow) uint64 { return r.Ready + r.InFlight + r.Delayed + r.Blocked }
		w.eventually("all is counted", 2*fresh, func() bool {
			rows := w.backlogs()
			return total(rows["g"]) == 120 && total(rows["idle"]) == 150
		})
		w.Crash(Controller) // one that begins without any owner
		w.Up(Controller)
		sleep(2 * fresh)
		if rows := w.backlogs(); total(rows["g"]) != 120 || total(rows["idle"]) != 150 {
			t.Errorf("after the controller began anew: %+v", rows)
		}
		w.Up(Output)
		w.eventually("its owner counts", 2*fresh, func() bool { return w.backlogs()["g"].Ready == 120 })
		if got := w.collect(w.consumer("g"), 120); len(got) != 120 {
			t.Errorf("%d messages came", len(got))
		}
		w.eventually("nothing is left", fresh, func() bool { return total(w.backlogs()["g"]) == 0 })
		if total(w.backlogs()["idle"]) != 150 {
			t.Errorf("idle: %+v", w.backlogs()["idle"])
		}
	})
}
