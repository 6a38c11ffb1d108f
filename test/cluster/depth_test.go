package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/tools/cli"
)

// columba runs a command line against the cluster; it has to end well.
func (w *world) columba(args ...string) string {
	w.t.Helper()
	out, talk, code := w.command(args...)
	if code != 0 {
		w.t.Fatalf("columba %s: exit code %d, %s", strings.Join(args, " "), code, talk)
	}
	return out
}

func (w *world) command(args ...string) (out, talk string, code int) {
	w.t.Helper()
	port := w.net.attach("command")
	defer port.kill()
	var stdout, stderr bytes.Buffer
	env := []string{"COLUMBA_ADDR=" + w.hosts[Frontend].addr}
	code = cli.MainVia(w.t.Context(), port.dial, args, strings.NewReader(""), &stdout, &stderr, env)
	return stdout.String(), stderr.String(), code
}

// json runs a command that prints one object.
func (w *world) json(into any, args ...string) {
	w.t.Helper()
	out := w.columba(append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		w.t.Fatalf("columba %s printed %q: %v", strings.Join(args, " "), out, err)
	}
}

// shownDepth is a line of `columba depth -o json`.
type shownDepth struct {
	Ready, Delayed, Blocked, Dead uint64
	DelayedRetry                  uint64   `json:"delayed_retry"`
	InFlight                      uint64   `json:"in_flight"`
	OldestReadyMs                 int64    `json:"oldest_ready_ms"`
	AckRate                       float64  `json:"ack_rate"`
	PublishRate                   float64  `json:"publish_rate"`
	DrainMs                       *float64 `json:"drain_ms"`
	UnknownExtents                int      `json:"unknown_extents"`
}

// depth is a group's depth by the client.
func (w *world) depth(group string) client.Depth {
	w.t.Helper()
	d, err := w.Client.Admin().Depth(w.t.Context(), queue, group)
	w.ok(err)
	if len(d) != 1 {
		w.t.Fatalf("%d depths of one group", len(d))
	}
	return d[0]
}

// counts are ready, in flight, delayed, blocked and dead.
func counts(d client.Depth) string {
	return fmt.Sprintf("%d %d %d %d %d", d.Ready, d.InFlight, d.Delayed, d.Blocked, d.Dead) + unknown(d)
}

// unknown says that a depth may be too low; "" if it is whole.
func unknown(d client.Depth) string {
	if d.UnknownExtents == 0 {
		return ""
	}
	return fmt.Sprintf(" and %d extents unknown", d.UnknownExtents)
}

// TestCluster_DepthOfWhatNobodyReads counts, by seqs, in open and sealed extents of a group that never had a consumer.
func TestCluster_DepthOfWhatNobodyReads(t *testing.T) {
	bubble(t, Options{Stores: 2, Outputs: 2, Input: rollAt(2000)}, func(w *world) {
		w.group("g", nil)
		w.group("late", func(g *core.GroupSpec) { g.Start = core.Start{Mode: core.StartLatest} })
		began := time.Now()
		for i := range 10 {
			w.publish(numbers(20*i+1, 20*i+20)...)
			sleep(500 * time.Millisecond)
		}
		if sealed := w.extents(queue)[core.ExtentSealed]; sealed == 0 {
			t.Fatal("no extent is sealed")
		}
		d := w.depth("g")
		if got := counts(d); got != "200 0 0 0 0" || d.UnknownExtents != 0 {
			t.Errorf("ready, in flight, delayed, blocked, dead are %s (%d extents unknown), want 200 0 0 0 0", got, d.UnknownExtents)
		}
		if age := time.Since(began); d.OldestReady > age || d.OldestReady < age-time.Second {
			t.Errorf("the oldest is %s old, want %s", d.OldestReady, age)
		}
		if d.PublishRate != 40 || d.AckRate != 0 || d.Drain >= 0 { // 200 messages in the five seconds since the first one
			t.Errorf("rates are %g and %g, it drains in %s; want 40, 0 and never", d.PublishRate, d.AckRate, d.Drain)
		}
		var shown shownDepth
		w.json(&shown, "depth", queue, "g")
		if shown.Ready != 200 || shown.PublishRate != 40 || shown.DrainMs != nil || shown.OldestReadyMs < 4000 {
			t.Errorf("the command shows %+v", shown)
		}
		if d := w.depth("late"); d.Ready != 200 {
			t.Errorf("a group that began before them has %s", counts(d))
		}
		w.group("later", func(g *core.GroupSpec) { g.Start = core.Start{Mode: core.StartLatest} })
		w.eventually("a group that begins after them has none", 5*time.Second, func() bool { return counts(w.depth("later")) == "0 0 0 0 0" })
		sleep(20 * time.Second)
		if d := w.depth("g"); d.PublishRate != 0 {
			t.Errorf("nothing was published for 20 s, the rate is %g", d.PublishRate)
		}
	})
}

// TestCluster_DepthFollowsEachState settles messages in every way there is; two seconds later the depth says so, over
// both output hosts.
func TestCluster_DepthFollowsEachState(t *testing.T) {
	bubble(t, Options{Outputs: 2, Input: rollAt(1000)}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) { g.MaxDeliveries = 2 })
		w.publish(numbers(1, 100)...)
		con := w.consumer("g", client.Prefetch(1))
		for i := range 20 {
			d := w.take(con, 10*time.Second)
			switch {
			case i < 10:
				w.ok(d.Ack())
			case i < 14:
				w.ok(d.Nack(client.After(20 * time.Second)))
			case i < 17:
				w.ok(d.Reject("no"))
			}
		}
		w.ok(con.Flush(w.t.Context()))
		sleep(2 * time.Second)
		// Three are held, and each of the two hosts may have one more on its way.
		if got := counts(w.depth("g")); got != "80 3 4 0 3" && got != "79 4 4 0 3" && got != "78 5 4 0 3" {
			t.Errorf("ready, in flight, delayed, blocked, dead are %s; want 80 3 4 0 3, or one or two of the ready ones in flight", got)
		}
		w.close(con)
	})
}

// TestCluster_DepthTellsRates lets a group fall behind, and then catch up.
func TestCluster_DepthTellsRates(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		stop := w.load(4) // 160 a second
		con := w.consumer("g", client.Prefetch(10))
		work := func(d, each time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); sleep(each) {
				w.ok(w.take(con, time.Second).Ack())
			}
		}
		work(30*time.Second, 25*time.Millisecond) // 40 a second
		d := w.depth("g")
		if d.PublishRate < 130 || d.PublishRate > 170 || d.AckRate < 30 || d.AckRate > 45 || d.Drain >= 0 {
			t.Errorf("rates are %g and %g, it drains in %s; want about 160, 40 and never", d.PublishRate, d.AckRate, d.Drain)
		}
		stop()
		work(15*time.Second, 10*time.Millisecond) // 100 a second
		d = w.depth("g")
		left := float64(d.Ready + d.InFlight)
		if d.PublishRate != 0 || d.AckRate < 80 || d.AckRate > 110 || d.Drain.Seconds() < left/110 || d.Drain.Seconds() > left/80 {
			t.Errorf("rates are %g and %g, it drains in %s with %g left; want 0, about 100, and that", d.PublishRate, d.AckRate, d.Drain, left)
		}
		w.close(con)
	})
}

// TestCluster_DepthOfSharesWithoutAnOwner takes all output hosts away, and then has one resume what it never read: acks
// above a message that hangs are known all the same.
func TestCluster_DepthOfSharesWithoutAnOwner(t *testing.T) {
	bubble(t, Options{Outputs: 2}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) { g.LockTimeout = 10 * time.Minute })
		w.publish(numbers(1, 1000)...)
		con := w.consumer("g")
		for i := range 900 {
			if d := w.take(con, 10*time.Second); i > 0 {
				w.ok(d.Ack())
			}
		}
		w.close(con)
		want := "100 1 0 0 0"
		w.eventually("the depth is "+want, 5*time.Second, func() bool { return counts(w.depth("g")) == want })
		sleep(2 * time.Second) // it is in checkpoints
		w.Crash(OutputOf(0), OutputOf(1))
		if got := counts(w.depth("g")); got != want {
			t.Errorf("without an output host: %s, want %s", got, want)
		}
		w.Up(OutputOf(0))
		sleep(5 * time.Second)
		if d := w.depth("g"); counts(d) != want || d.UnknownExtents > 0 {
			t.Errorf("a new owner that has read nothing: %s (%d extents unknown), want %s", counts(d), d.UnknownExtents, want)
		}
	})
}

// TestCluster_DepthSaysWhatItCannotCount takes the one store of an open extent away.
func TestCluster_DepthSaysWhatItCannotCount(t *testing.T) {
	bubble(t, Options{Stores: 2, Replicas: 1}, func(w *world) {
		w.group("g", nil)
		w.publish(numbers(1, 10)...)
		w.Crash(w.readFrom())
		d := w.depth("g")
		if d.UnknownExtents != 1 {
			t.Errorf("%d extents are unknown, want one: %+v", d.UnknownExtents, d)
		}
		out, talk, code := w.command("depth", queue, "g")
		if code != 0 || !strings.Contains(talk, "1 extent could not be counted") || !strings.Contains(out, "OLDEST_READY_MS") {
			t.Errorf("the command prints %q, says %q and ends with %d", out, talk, code)
		}
	})
}

// TestCluster_DepthOfADyingMessage: a message dies while the depth is counted. It is in its place before, or in the one
// after.
func TestCluster_DepthOfADyingMessage(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) { g.MaxDeliveries = 2 })
		w.publish("a")
		con := w.consumer("g")
		d := w.take(con, time.Minute)
		sleep(5 * time.Second)
		var once sync.Once
		w.OnMeta(Frontend, func(_ context.Context, op Op) error {
			if op.Name == "List" && op.Table == metadata.Dones.Name {
				once.Do(func() {
					d.Reject("bad")
					sleep(3 * time.Second)
				})
			}
			return nil
		})
		if got := counts(w.depth("g")); got == "0 0 0 0 0" {
			t.Error("the message is nowhere")
		}
		w.OnMeta(Frontend, nil)
		w.close(con)
	})
}
