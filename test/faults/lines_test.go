package faults

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/columbamq/columba/test/process"
)

// lineCount is how many lines are published: fewer when all tests run.
func lineCount() int {
	if os.Getenv(longEnv) == "" {
		return 20_000
	}
	return 100_000
}

// TestEveryLineReachesEveryGroup is `seq 1 100000 | columba publish` with two groups of three consumers each.
func TestEveryLineReachesEveryGroup(t *testing.T) {
	byCommands(t)
	count := lineCount()
	r := newRun(t, process.StartServer(t), "one", "two")
	consumers := r.consumers(3)
	if code := r.publish(count).Wait(); code != 0 {
		t.Fatalf("publish ended with %d", code)
	}
	if n := r.acknowledged(); n != count {
		t.Fatalf("%d of %d lines were acknowledged", n, count)
	}
	r.drain()
	interrupt(t, consumers)
	for _, c := range r.check().Counts {
		if c.Received != count || c.Duplicates != 0 {
			t.Errorf("group %s received %d of %d lines and %d duplicates", c.Group, c.Received, count, c.Duplicates)
		}
	}
}

// TestNoLineIsLostByKills is the same with kill -9 of the server in the middle, again and again.
func TestNoLineIsLostByKills(t *testing.T) {
	byCommands(t)
	kills, count := 5, lineCount()
	if os.Getenv(longEnv) == "" {
		kills = 3
	}
	r := newRun(t, process.StartServer(t), "one", "two")
	consumers := r.consumers(3)
	publisher := r.publish(count, "--rate", strconv.Itoa(count/4))
	for i := range kills {
		process.Eventually(t, "the publisher goes on", func() bool {
			return r.acknowledged() >= (i+1)*count/(2*kills+2) // what is read of its output may lag behind
		})
		from := time.Now()
		r.server.Kill()
		if !publisher.Running() {
			t.Error("the publisher had ended before the last kill; slow it down")
		}
		r.server.Start()
		r.down("server", from)
	}
	if code := publisher.Wait(); code != 0 {
		t.Errorf("publish ended with %d: it has to try again by itself", code)
	}
	r.drain()
	interrupt(t, consumers)
	r.check()
}

// consumers starts n consumers per group.
func (r *run) consumers(n int) []*process.Command {
	r.t.Helper()
	var out []*process.Command
	for _, g := range r.groups {
		for i := range n {
			out = append(out, r.consume(g, i))
		}
	}
	return out
}

func interrupt(t *testing.T, consumers []*process.Command) {
	t.Helper()
	for _, c := range consumers {
		if !c.Running() {
			t.Errorf("a consumer has ended by itself: %s", c.Stderr())
		}
		if code := c.Interrupt(); code != 0 {
			t.Errorf("consume ended with %d after an interrupt", code)
		}
	}
}
