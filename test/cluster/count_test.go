package cluster

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// owners is how many output hosts have shares of a group.
func (w *world) owners(group string) int {
	w.t.Helper()
	g, err := w.Client.Admin().GetGroup(w.t.Context(), queue, group)
	w.ok(err)
	owners := make(map[core.HostID]bool)
	for r, err := range metadata.All[metadata.AssignmentRecord](w.t.Context(), w.Meta, metadata.Assignments, g.ID.String(), metadata.One) {
		w.ok(err)
		owners[r.Value.Owner] = true
	}
	return len(owners)
}

// spread publishes until two output hosts have shares of the group, and answers how many messages there are.
func (w *world) spread(group string) (n int) {
	w.t.Helper()
	for w.owners(group) < 2 && n < 2000 {
		w.publish(numbers(n+1, n+100)...)
		n += 100
		sleep(3 * time.Second)
	}
	if w.owners(group) < 2 {
		w.t.Fatal("one host has all shares")
	}
	return n
}

// TestConsumeCount_LosesNothingAtMostOnce drains a group that delivers at most once, by commands that each want a few
// of what two hosts have: what was sent to a command and not printed would be lost.
func TestConsumeCount_LosesNothingAtMostOnce(t *testing.T) {
	bubble(t, Options{Outputs: 2, Input: rollAt(1000)}, func(w *world) {
		w.onceGroup()
		n := w.spread("g")
		got := make(map[string]int)
		for i, left := 0, n; left > 0; i++ {
			count := min([]int{1, 2, 7, 40}[i%4], left)
			left -= count
			lines := strings.Fields(w.columba("consume", queue, "g", "--count", strconv.Itoa(count), "--timeout", "20s"))
			if len(lines) != count {
				t.Fatalf("%d lines, want %d", len(lines), count)
			}
			for _, l := range lines {
				got[l]++
			}
		}
		w.never(got, n, 0)
	})
}

// TestConsumeCount_LocksNoMoreThanWanted leaves what it got locked: that is as many as it wanted, and all the rest is
// ready.
func TestConsumeCount_LocksNoMoreThanWanted(t *testing.T) {
	bubble(t, Options{Outputs: 2, Input: rollAt(1000)}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) { g.LockTimeout = time.Hour })
		n := uint64(w.spread("g"))
		locked := uint64(0)
		for _, count := range []int{1, 30, 3} {
			out := w.columba("consume", queue, "g", "--count", strconv.Itoa(count), "--ack", "none", "--timeout", "20s")
			locked += uint64(count)
			if n := len(strings.Fields(out)); n != count {
				t.Errorf("%d lines, want %d", n, count)
			}
			if d := w.depth("g"); d.InFlight != locked || d.Ready != n-locked {
				t.Errorf("%s are held, want %d", counts(d), locked)
			}
		}
	})
}

// TestLimit_OneMessageOfManyHosts asks three hosts for one message in all: the one that has it sends it, wherever it
// was asked for first. One more that is published for a consumer that waits comes soon, too.
func TestLimit_OneMessageOfManyHosts(t *testing.T) {
	bubble(t, Options{Outputs: 3, Input: rollAt(1)}, func(w *world) { // an extent for each message
		w.group("g", nil)
		for _, body := range numbers(1, 12) {
			con := w.consumer("g", client.Limit(1))
			sleep(time.Second)
			since := time.Now()
			w.publish(body)
			w.ok(w.next(con, body, 1).Ack())
			if took := time.Since(since); took > 2*time.Second {
				t.Errorf("%s took %s", body, took)
			}
			if d := w.take(con, time.Minute); d != nil {
				t.Errorf("%s came beyond the limit", d.Body)
			}
			w.close(con)
		}
	})
}

// TestLockTimeout_IsToldToConnectedConsumers changes a group's lock timeout while somebody consumes.
func TestLockTimeout_IsToldToConnectedConsumers(t *testing.T) {
	bubble(t, Options{Outputs: 2}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) { g.LockTimeout = time.Minute })
		con := w.consumer("g")
		if got := con.LockTimeout(); got != time.Minute {
			t.Fatalf("lock timeout %s, want 1m", got)
		}
		for _, lock := range []string{"5m", "10s"} {
			w.columba("update", "group", queue, "g", "--lock-timeout", lock)
			want, err := time.ParseDuration(lock)
			w.ok(err)
			w.eventually("the consumer knows", soon, func() bool { return con.LockTimeout() == want })
		}
		w.close(con)
	})
}
