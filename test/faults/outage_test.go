package faults

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/test/process"
	"github.com/columbamq/columba/tools/verify"
)

// truly reports whether a message is bad, whoever works on it.
func truly(seq uint64) bool { return seq%50 == 7 }

// TestOutageOfAllWorkers has nothing succeed for many lock timeouts, while publishing goes on, and output hosts are
// killed in the middle: the workers of one group nack, those of another hang, and those of a third die. No message dies
// of it; when the workers are back, what is truly bad does, and nothing else.
func TestOutageOfAllWorkers(t *testing.T) {
	long(t)
	const lock = 3 * time.Second
	outage := time.Duration(max(6, scaled(t, 15))) * lock
	c := process.StartCluster(t, process.Layout{})
	c.Controller.Must("", "create", "queue", queue)
	l := newLoadOf(t, c.Controller, 30, []string{"nack", "hang", "die"}, "--lock-timeout", lock.String(), "--max-deliveries", "5")
	var out atomic.Bool
	l.settle = func(group string, d *client.Delivery) (verify.Settled, error) {
		switch {
		case out.Load() && group == "nack":
			return verify.Back, d.Nack(client.Reason("the database is away"))
		case out.Load():
			return verify.Dropped, nil
		case truly(keyOf(d.Body).Seq):
			return verify.Back, d.Nack(client.Reason("truly bad"))
		}
		return verify.Done, d.Ack()
	}
	l.start(1, 2)
	l.noted(verify.Crash{What: "consumers are killed from now on", From: time.Now(), To: time.Now()})
	<-time.After(2 * lock)
	out.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), outage)
	defer cancel()
	var dying sync.WaitGroup
	dying.Go(func() {
		for ctx.Err() == nil {
			p := l.commandOf("die", verify.Dropped, func() {}, "--ack", "none", "--count", "50")
			passes(ctx, 700*time.Millisecond)
			p.Kill()
		}
	})
	passes(ctx, outage/2)
	for _, s := range c.Outputs {
		from := time.Now()
		s.Restart()
		c.AwaitHosts()
		l.down(s.Name, from)
	}
	<-ctx.Done()
	dying.Wait()
	for _, g := range l.groups {
		for _, d := range deadLettersOf(t, l.client, g) {
			if k := keyOf(d.Message.Body); !truly(k.Seq) {
				t.Errorf("group %s: %s is dead after %d attempts, in an outage: %s", g, k, d.Attempts, d.Error)
			}
		}
	}
	out.Store(false)
	report := l.finish()
	l.mu.Lock()
	bad := 0
	for _, p := range l.history.Published {
		if p.Outcome == verify.Acked && truly(p.Seq) {
			bad++
		}
	}
	for _, r := range l.history.Received {
		if r.Settled == verify.Dead && !truly(r.Seq) {
			t.Errorf("group %s: %s is dead after %d attempts", r.Group, r.Key, r.Attempt)
		}
	}
	unknown := l.outcomes[verify.Unknown]
	l.mu.Unlock()
	for _, n := range report.Counts {
		if n.Dead < bad || n.Dead > bad+unknown {
			t.Errorf("group %s: %d messages are dead, want the %d that are truly bad", n.Group, n.Dead, bad)
		}
	}
	l.row(fmt.Sprintf("an outage of all workers for %s: they nack, hang, die", outage), fmt.Sprintf("none dead of it, and then the %d that are truly bad", bad))
}
