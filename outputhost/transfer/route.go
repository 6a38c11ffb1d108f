package transfer

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/outputhost/transfer/history"
	"github.com/columbamq/columba/outputhost/transfer/retryqueue"
	"github.com/columbamq/columba/wire"
)

// route is what differs between the destinations.
type route struct {
	// path of the queue.
	path func(queue, group string) string
	// prepare has the queue be there.
	prepare func(ctx context.Context, m *Mover, g Group) error
	// find looks for messages that the queue may have. An error says that it could not look everywhere.
	find func(ctx context.Context, m *Mover, g Group, some []letter) (map[history.Copy]bool, error)
	// patience is how long messages wait for look-ups that fail before they are appended without one: a second copy is
	// possible then, a loss never.
	patience time.Duration
}

var routes = [dispatch.Destinations]route{
	dispatch.DeadLetterQueue: {
		path:     core.DLQPath,
		prepare:  func(context.Context, *Mover, Group) error { return nil }, // it is made with the group
		find:     findDead,
		patience: 5 * time.Minute,
	},
	dispatch.RetryQueue: { // whoever reads it drops the second of two
		path:    core.RetryPath,
		prepare: ensureRetry,
		find:    findDelayed,
	},
}

const (
	// lookBack is how much earlier than an append its record may seem to be: the clocks of hosts differ, and what is
	// known of the time of an append is when an owner saved its checkpoint last. Owners that die one after another,
	// before they look, save later ones: three of them fit in.
	lookBack       = 2*time.Minute + 3*dispatch.TransferDoubt
	lookTimeout    = 10 * time.Second // of one look-up in the dead letter queue
	lookDueTimeout = 3 * time.Second  // of one message in the retry queue
	looksAtOnce    = 8                // messages that are looked for there side by side
)

// findDead reads the messages appended to the dead letter queue since the earliest time at which the first of the given
// messages may have been appended. Messages that were merged or purged meanwhile count as long as a store has them.
func findDead(ctx context.Context, m *Mover, g Group, some []letter) (map[history.Copy]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	want := make(map[history.Copy]bool, len(some))
	since := m.cfg.Now()
	for _, x := range some {
		want[history.CopyOf(dispatch.DeadLetterQueue, x.record)] = true
		at := x.Since
		if at.IsZero() {
			at, _ = g.Owns(x.Transfer)
		}
		if !at.IsZero() && at.Before(since) {
			since = at
		}
	}
	found := make(map[history.Copy]bool)
	err := m.cfg.Reader.EachSince(ctx, g.Record().DLQ, since.Add(-lookBack), func(r *wire.Record) (more bool) {
		if c := history.CopyOf(dispatch.DeadLetterQueue, r); want[c] {
			found[c] = true
		}
		return len(found) < len(want)
	})
	return found, err
}

// findDelayed reads what is due in the retry queue when the messages are: however often one is appended, it has the
// same due time.
func findDelayed(ctx context.Context, m *Mover, g Group, some []letter) (map[history.Copy]bool, error) {
	found := make(map[history.Copy]bool)
	var mu sync.Mutex // of found
	var looks errgroup.Group
	looks.SetLimit(looksAtOnce)
	for _, x := range some {
		looks.Go(func() error {
			there, err := findDue(ctx, m, g, x)
			if there {
				mu.Lock()
				found[history.CopyOf(dispatch.RetryQueue, x.record)] = true
				mu.Unlock()
			}
			return err
		})
	}
	return found, looks.Wait()
}

// findDue reports whether a message is there.
func findDue(ctx context.Context, m *Mover, g Group, x letter) (there bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookDueTimeout)
	defer cancel()
	group := g.Record()
	if group.Retry.IsZero() { // it was made since the group's record was read
		now, _, err := metadata.Read[metadata.GroupRecord](ctx, m.cfg.Meta, metadata.Groups, metadata.GroupKey(group.Queue, group.Spec.Name), metadata.One)
		switch {
		case err != nil:
			return false, err
		case now.ID != group.ID || now.Retry.IsZero():
			return false, nil
		}
		group.Retry = now.Retry
	}
	want := history.CopyOf(dispatch.RetryQueue, x.record)
	err = m.cfg.Reader.EachDue(ctx, group.Retry, group.ID, time.UnixMilli(x.record.DeliverAt), func(r *wire.Record) {
		if history.CopyOf(dispatch.RetryQueue, r) == want {
			there = true
		}
	})
	return there, err
}

// ensureRetry makes the group's retry queue, unless it is there.
func ensureRetry(ctx context.Context, m *Mover, g Group) error {
	box := g.Outbox()
	if box.isReady(dispatch.RetryQueue) {
		return nil
	}
	err := retryqueue.Ensure(ctx, m.cfg.Meta, g.Record(), m.cfg.Now())
	if err == nil {
		box.setReady(dispatch.RetryQueue)
	}
	return err
}
