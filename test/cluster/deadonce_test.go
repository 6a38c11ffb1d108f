package cluster

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
	"github.com/columbamq/columba/metadata"
)

// deadSteps are moments of a message's way to the dead letter queue, at which its output host is about to die.
var deadSteps = map[string]struct {
	appended bool // the dead letter queue has the message by then
	wait     func(w *world) (heal func())
}{
	"before its intent is durable": {false, func(w *world) func() { w.OnMeta(Output, refuseSaves(0)); return func() {} }},
	"after its intent is durable": {false, func(w *world) func() { // nothing of it reaches the input host
		return w.net.drop(path{w.hosts[Output].addr, w.hosts[Input].addr})
	}},
	"after it was appended, without an answer": {true, func(w *world) func() {
		return w.net.drop(path{w.hosts[Input].addr, w.hosts[Output].addr})
	}},
	"after it was appended, before that is durable": {true, func(w *world) func() {
		w.OnMeta(Output, refuseSaves(1))
		return func() {}
	}},
	"after that is durable": {true, func(*world) func() { return func() {} }},
}

// refuseSaves lets so many checkpoints of a share pass, and no more.
func refuseSaves(pass int64) func(context.Context, Op) error {
	var saved atomic.Int64
	return func(_ context.Context, op Op) error {
		if op.Name == "PutAll" && op.Table == metadata.Checkpoints.Name && saved.Add(1) > pass {
			return core.Errorf(core.CodeUnavailable, "refused")
		}
		return nil
	}
}

// TestDead_OneOverCrashes kills the output host of a message, or every host, at each step of its way to the dead letter
// queue: it is there once, or it is delivered again, and then there once. A merge brings it back once. A purge that is
// done stays done; before the message is appended, there is nothing to purge.
func TestDead_OneOverCrashes(t *testing.T) {
	for name, step := range deadSteps {
		for _, everybody := range []bool{false, true} {
			for _, how := range []string{"merge", "purge"} {
				if how == "purge" && !step.appended {
					continue
				}
				who := "the output host"
				if everybody {
					who = "all"
				}
				t.Run(strings.Join([]string{name, who, how}, "/"), func(t *testing.T) {
					underrace.One(t, everybody && how == "merge")
					deadOverCrash(t, step.appended, step.wait, everybody, how)
				})
			}
		}
	}
}

func deadOverCrash(t *testing.T, appended bool, wait func(*world) func(), everybody bool, how string) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) { g.MaxDeliveries, g.Breaker = 5, core.BreakerOff })
		w.publish("first", "x", "last")
		con := w.consumer("g")
		w.ok(w.next(con, "first", 1).Reject("no")) // the dead letter queue is there
		w.eventually("one is a dead letter", time.Minute, func() bool { return w.letters("g") == 1 })
		sleep(3 * time.Second)
		d := w.next(con, "x", 1)
		w.ok(w.take(con, time.Minute).Ack())
		sleep(3 * time.Second)
		heal := wait(w)
		w.ok(d.Reject("bad"))
		w.ok(con.Flush(w.t.Context()))
		sleep(1500 * time.Millisecond)
		if got := w.letters("g") == 2; got != appended {
			t.Fatalf("the dead letter queue has the message: %v, want %v", got, appended)
		}
		if how == "purge" {
			op, err := w.Client.Admin().PurgeDeadLetters(w.t.Context(), queue, "g")
			w.ok(err)
			w.ended(op.ID)
		}
		down := []core.HostID{Output}
		if everybody {
			down = w.All()
		}
		w.Crash(down...)
		heal()
		w.Up(down...)
		if d := w.take(con, 2*time.Minute); d != nil { // the reject is forgotten
			if appended || string(d.Body) != "x" || d.Attempt != 2 {
				t.Fatalf("%q is delivered as attempt %d, and was a dead letter before: %v", d.Body, d.Attempt, appended)
			}
			w.ok(d.Reject("bad again"))
		}
		want := []string{"first", "x"}
		if how == "purge" {
			want = nil
		}
		w.eventually("its dead letters are settled", time.Minute, func() bool { return len(w.listed("g")) == len(want) })
		sleep(time.Minute)
		w.equal("dead letters", w.listed("g"), want)
		if got := w.depth("g"); got.Dead != uint64(len(want)) || got.Ready+got.InFlight+got.Delayed != 0 {
			t.Errorf("depth %+v, want %d dead and nothing else", got, len(want))
		}
		if how == "merge" {
			op, err := w.Client.Admin().MergeDeadLetters(w.t.Context(), queue, "g", 0)
			w.ok(err)
			w.ended(op.ID)
			w.all(w.collect(con, 2), want, true)
			if d := w.take(con, time.Minute); d != nil {
				t.Errorf("%q came twice", d.Body)
			}
		}
		w.close(con)
	})
}

// TestDead_AgainInAnotherEpoch: who sends a group back may see a message die again, and each death is a dead letter; a
// crash does not take the first for the second.
func TestDead_AgainInAnotherEpoch(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", func(g *core.GroupSpec) { g.Breaker = core.BreakerOff })
		w.publish("x")
		con := w.consumer("g")
		w.ok(w.next(con, "x", 1).Reject("bad"))
		w.eventually("it is a dead letter", time.Minute, func() bool { return w.letters("g") == 1 })
		w.seek("g", core.Start{Mode: core.StartEarliest})
		d := w.next(con, "x", 1)
		sleep(3 * time.Second)
		w.Crash(Input) // nothing of it reaches the dead letter queue, also not later: what a dropped path holds up would, once it is healed
		w.ok(d.Reject("bad"))
		w.ok(con.Flush(w.t.Context()))
		sleep(3 * time.Second)
		w.Crash(Output)
		w.Up(Input, Output)
		w.eventually("it died twice", time.Minute, func() bool { return w.letters("g") == 2 })
		sleep(time.Minute)
		w.equal("dead letters", w.listed("g"), []string{"x", "x"})
		w.close(con)
	})
}
