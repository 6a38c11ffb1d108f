package transfer

import (
	"context"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/outputhost/transfer/retryqueue"
	"github.com/columbamq/columba/wire"
)

// route is what differs between the destinations.
type route struct {
	// path of the queue.
	path func(queue, group string) string
	// prepare has the queue be there.
	prepare func(ctx context.Context, m *Mover, g Group) error
	// search calls f for the records of the queue that earlier appends of messages may have made, and for others, until
	// it answers false. An error says that it could not look everywhere.
	search func(ctx context.Context, m *Mover, g Group, some []letter, f func(*wire.Record) (more bool)) error
}

var routes = [dispatch.Destinations]route{
	dispatch.DeadLetterQueue: {
		path:    core.DLQPath,
		prepare: func(context.Context, *Mover, Group) error { return nil }, // it is made with the group
		search:  searchDead,
	},
	dispatch.RetryQueue: {
		path:    core.RetryPath,
		prepare: ensureRetry,
		search:  searchDelayed,
	},
}

// lookBack is how much earlier than an append its record may seem to be: the clocks of hosts differ, and what is known
// of the time of an append is when an owner saved its checkpoint last. Owners that die one after another, before they
// look, save later ones: three of them fit in.
const lookBack = 2*time.Minute + 3*dispatch.TransferDoubt

// searchDead reads the messages appended to the dead letter queue since the earliest time at which the first of the
// given messages may have been appended.
func searchDead(ctx context.Context, m *Mover, g Group, some []letter, f func(*wire.Record) (more bool)) error {
	since := m.cfg.Now()
	for _, x := range some {
		at := x.Since
		if at.IsZero() {
			at, _ = g.Owns(x.Transfer)
		}
		if !at.IsZero() && at.Before(since) {
			since = at
		}
	}
	return m.cfg.Reader.EachSince(ctx, g.Record().DLQ, since.Add(-lookBack), f)
}

// searchDelayed reads what is due in the retry queue when the messages are: however often one is appended, it has the
// same due time.
func searchDelayed(ctx context.Context, m *Mover, g Group, some []letter, f func(*wire.Record) (more bool)) error {
	group := g.Record()
	if group.Retry.IsZero() { // it was made since the group's record was read; one copy of the metadata may not know that
		now, _, err := metadata.Read[metadata.GroupRecord](ctx, m.cfg.Meta, metadata.Groups, metadata.GroupKey(group.Queue, group.Spec.Name), metadata.Quorum)
		switch {
		case err != nil:
			return err
		case now.ID != group.ID || now.Retry.IsZero():
			return nil
		}
		group.Retry = now.Retry
	}
	due := make([]int64, len(some))
	for i, x := range some {
		due[i] = x.record.DeliverAt
	}
	return m.cfg.Reader.EachDue(ctx, group.Retry, due, f)
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
