package clienttest

import (
	"context"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// CreateQueue makes a queue with the default settings, and groups of it. For other settings use
// [client.Admin.CreateQueue].
func (b *Broker) CreateQueue(t testing.TB, path string, groups ...core.GroupSpec) {
	t.Helper()
	admin := b.client.Admin()
	if _, err := admin.CreateQueue(t.Context(), core.QueueSpec{Path: path}); err != nil {
		t.Fatalf("create queue %s: %v", path, err)
	}
	for _, g := range groups {
		g.Queue = path
		if _, err := admin.CreateGroup(t.Context(), g); err != nil {
			t.Fatalf("create group %s of %s: %v", g.Name, path, err)
		}
	}
}

// Publish publishes messages with these bodies, in this order, and waits until all are stored.
func (b *Broker) Publish(t testing.TB, queue string, bodies ...string) []client.Receipt {
	t.Helper()
	pub, err := b.client.Publisher(t.Context(), queue)
	if err != nil {
		t.Fatalf("publish to %s: %v", queue, err)
	}
	receipts := make([]client.Receipt, len(bodies))
	errs := make([]error, len(bodies))
	for i, body := range bodies {
		err := pub.PublishAsync(t.Context(), client.Message{Body: []byte(body)}, func(r client.Receipt, err error) {
			receipts[i], errs[i] = r, err
		})
		if err != nil {
			t.Fatalf("publish %q to %s: %v", body, queue, err)
		}
	}
	if err := pub.Close(t.Context()); err != nil {
		t.Fatalf("publish to %s: %v", queue, err)
	}
	for i, err := range errs {
		if err != nil {
			t.Fatalf("publish %q to %s: %v", bodies[i], queue, err)
		}
	}
	return receipts
}

// Work runs a handler for the messages of a group as [client.Client.Work] does, in the background, until stop or the
// end of the test.
func (b *Broker) Work(t testing.TB, queue, group string, h client.Handler, opts ...client.WorkOption) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan struct{})
	b.tasks.Go(func() {
		defer close(done)
		if err := b.client.Work(ctx, queue, group, h, opts...); err != nil {
			t.Errorf("work on group %s of %s: %v", group, queue, err)
		}
	})
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

// Depth counts the messages of a group in each state.
func (b *Broker) Depth(t testing.TB, queue, group string) client.Depth {
	t.Helper()
	d, err := b.client.Admin().Depth(t.Context(), queue, group)
	if err != nil {
		t.Fatalf("depth of group %s of %s: %v", group, queue, err)
	}
	return d[0]
}

// DeadLetters are the dead letters of a group, oldest first.
func (b *Broker) DeadLetters(t testing.TB, queue, group string) []client.DeadLetter {
	t.Helper()
	var out []client.DeadLetter
	for d, err := range b.client.Admin().DeadLetters(t.Context(), queue, group) {
		if err != nil {
			t.Fatalf("dead letters of group %s of %s: %v", group, queue, err)
		}
		out = append(out, d)
	}
	return out
}

const (
	// WaitEmpty looks after lookEvery, then after twice as long each time, up to lookMost or to a part of the time that
	// it has waited, lookPart: looking each second would cost most of the time of a test with long jobs.
	lookEvery = 10 * time.Millisecond
	lookMost  = time.Second
	lookPart  = 100
	// quiet is for how long a group must have had nothing to count as empty: what was just published is counted when
	// its extent has been given to an output host.
	quiet = time.Second
)

// WaitEmpty waits until a group has had nothing ready, in flight or delayed for a second: every message is acked, dead
// or blocked. It fails the test when that takes longer than within.
func (b *Broker) WaitEmpty(t testing.TB, queue, group string, within time.Duration) {
	t.Helper()
	began := time.Now()
	var since time.Time // it has been empty; zero: it is not
	for pause := lookEvery; ; {
		d := b.Depth(t, queue, group)
		now := time.Now()
		switch {
		case d.Ready+d.InFlight+d.Delayed > 0, d.UnknownExtents > 0:
			since = time.Time{}
		case since.IsZero():
			since, pause = now, min(pause, lookMost)
		case now.Sub(since) >= quiet:
			return
		}
		if now.Sub(began) > within {
			t.Fatalf("group %s of %s is not empty within %s: %+v", group, queue, within, d)
		}
		time.Sleep(pause)
		pause = min(2*pause, max(lookMost, time.Since(began)/lookPart))
	}
}
