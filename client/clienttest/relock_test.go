package clienttest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/client/clienttest"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
)

// setLockTimeout changes the lock timeout of the group, and lets the consumers learn it.
func setLockTimeout(t *testing.T, b *clienttest.Broker, lock time.Duration) {
	t.Helper()
	_, err := b.Client().Admin().UpdateGroup(t.Context(), core.GroupSpec{Queue: queue, Name: "billing", LockTimeout: lock}, "lock_timeout")
	ok(t, err)
	b.Advance(5 * time.Second)
}

// TestWork_OutlivesAChangeOfTheLockTimeout changes the lock timeout while jobs run whose messages were locked for the
// one before: each job runs once, to its end.
func TestWork_OutlivesAChangeOfTheLockTimeout(t *testing.T) {
	const long, short = time.Minute, 8 * time.Second
	for name, x := range map[string]struct {
		before, after, runs time.Duration
	}{
		"lowered":                        {long, short, 15 * time.Second},
		"lowered after an extension":     {long, short, 25 * time.Second},
		"lowered to the least":           {long, core.MinLockTimeout, 15 * time.Second},
		"lowered just after a delivery":  {long, core.MinLockTimeout, time.Second},
		"raised":                         {short, long, 3 * time.Second},
		"raised just after a delivery":   {short, long, 0},
		"raised from the least":          {2 * core.MinLockTimeout, long, 10 * time.Second},
		"raised just before an end of 2": {2 * core.MinLockTimeout, long, 0},
	} {
		t.Run(name, func(t *testing.T) {
			underrace.One(t, name == "lowered to the least")
			bubble(t, core.GroupSpec{LockTimeout: x.before}, func(t *testing.T, b *clienttest.Broker) {
				const jobs = 3
				a, ends, h := job(2 * long)
				b.Work(t, queue, "billing", h, client.Concurrency(2*jobs)) // so that a message that comes again is handled at once
				for i := range jobs {
					b.Publish(t, queue, fmt.Sprint(i))
				}
				b.Advance(x.runs)
				setLockTimeout(t, b, x.after)
				b.WaitEmpty(t, queue, "billing", time.Hour)
				wantOnce(t, a, jobs)
				if got := ends.get(); len(got) > 0 {
					t.Errorf("handlers were told to stop: %v", got)
				}
			})
		})
	}
}

// TestWork_OutlivesManyChangesOfTheLockTimeout goes back and forth between the least lock timeout and a longer one,
// while jobs run that take longer than the least: each job runs once, as the first attempt.
func TestWork_OutlivesManyChangesOfTheLockTimeout(t *testing.T) {
	bubble(t, core.GroupSpec{LockTimeout: core.MinLockTimeout}, func(t *testing.T, b *clienttest.Broker) {
		const jobs = 160
		a, ends, h := job(3 * time.Second)
		b.Work(t, queue, "billing", h, client.Concurrency(20))
		for i := range jobs {
			b.Publish(t, queue, fmt.Sprint(i))
		}
		for i := range 8 {
			b.Advance(time.Duration(100*i) * time.Millisecond)
			setLockTimeout(t, b, []time.Duration{20 * time.Second, core.MinLockTimeout}[i%2])
		}
		b.WaitEmpty(t, queue, "billing", time.Hour)
		wantOnce(t, a, jobs)
		if got := ends.get(); len(got) > 0 {
			t.Errorf("handlers were told to stop: %v", got)
		}
	})
}

// TestConsumer_LockTimeoutIsRaisedWhileMessagesWait: what waits at the client was locked for the shorter time, so it
// goes back before that has passed.
func TestConsumer_LockTimeoutIsRaisedWhileMessagesWait(t *testing.T) {
	bubble(t, core.GroupSpec{LockTimeout: 30 * time.Second}, func(t *testing.T, b *clienttest.Broker) {
		con := consumer(t, b)
		b.Publish(t, queue, "a", "b", "c")
		b.Advance(time.Second)
		setLockTimeout(t, b, 10*time.Minute)
		b.Advance(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		n := 0
		for d, err := range con.Deliveries(ctx) {
			ok(t, err)
			if n++; d.Attempt != 1 {
				t.Errorf("%s came as attempt %d, want the first", d.Body, d.Attempt)
			}
			ok(t, d.Ack())
		}
		if n != 3 {
			t.Errorf("%d deliveries of 3 messages", n)
		}
		ok(t, con.Close(t.Context()))
	})
}
