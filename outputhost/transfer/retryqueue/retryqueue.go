// Package retryqueue creates the retry queue of a group, with the first message that is moved there.
package retryqueue

import (
	"context"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/wire"
)

const (
	// consumedRetention is how long messages are kept in the retry queue once all of their extent have been settled.
	consumedRetention = time.Hour
	// unconsumedRetention is how long they are kept after they were due, if nobody wants them: as long as dead letters.
	unconsumedRetention = 14 * 24 * time.Hour
)

// maxTries bounds how often the name is looked at again because others changed it.
const maxTries = 8

// Ensure makes the retry queue of a group, unless it is there. It may be done again, and by several hosts at once.
// CodeNotFound: the group was deleted.
func Ensure(ctx context.Context, meta metadata.Store, group metadata.GroupRecord, now time.Time) error {
	key := metadata.GroupKey(group.Queue, group.Spec.Name)
	g, err := metadata.Change(ctx, meta, metadata.Groups, key, func(r *metadata.GroupRecord) error {
		switch {
		case gone(*r, group.ID):
			return errDeleted(group)
		case !r.Retry.IsZero():
			return metadata.ErrNoChange
		}
		r.Retry = core.QueueID{ID: core.NewID(now)}
		return nil
	})
	if err != nil {
		return core.Errorf(core.CodeOf(err), "make the retry queue of group %s: %w", group.Spec.Name, err)
	}
	q, _, err := metadata.Read[metadata.QueueRecord](ctx, meta, metadata.Queues, metadata.QueueKey(g.Retry), metadata.Quorum)
	if err == nil && q.Spec.Status != core.StatusDeleted {
		return nil
	}
	if err == nil || core.CodeOf(err) == core.CodeNotFound {
		err = build(ctx, meta, g)
	}
	if err != nil {
		return core.Errorf(core.CodeOf(err), "make the retry queue of group %s: %w", group.Spec.Name, err)
	}
	return nil
}

func gone(r metadata.GroupRecord, id core.GroupID) bool {
	return r.ID != id || r.Spec.Status == core.StatusDeleted
}

func errDeleted(g metadata.GroupRecord) error {
	return core.Errorf(core.CodeNotFound, "group %s of queue %s was deleted", g.Spec.Name, g.Spec.Queue)
}

// build creates the rows of the queue. A deletion of the group meanwhile may not have found them: then build undoes
// them.
func build(ctx context.Context, meta metadata.Store, g metadata.GroupRecord) error {
	of, _, err := metadata.Read[metadata.QueueRecord](ctx, meta, metadata.Queues, metadata.QueueKey(g.Queue), metadata.Quorum)
	if err != nil {
		return err
	}
	name := metadata.NameRecord{Queue: g.Retry, Owner: g.ID, Home: core.MergedInto(g.Queue, g.ID), Spec: core.QueueSpec{
		Path: core.RetryPath(g.Spec.Queue, g.Spec.Name), Consistency: core.AP, Durability: of.Spec.Durability,
		Replicas: of.Spec.Replicas, MinReplicas: of.Spec.MinReplicas, MaxMessage: wire.MaxPayload,
		ConsumedRetention: consumedRetention, UnconsumedRetention: unconsumedRetention, Status: core.StatusEnabled,
	}}
	if err := claim(ctx, meta, name, g); err != nil {
		return err
	}
	q := metadata.QueueRecord{ID: name.Queue, Spec: name.Spec, Created: name.Queue.Time().UTC(), Owner: name.Owner, Home: name.Home}
	if err := metadata.Create(ctx, meta, metadata.Queues, metadata.QueueKey(q.ID), q); err != nil && core.CodeOf(err) != core.CodeExists {
		return err
	}
	if err := followCopies(ctx, meta, of.ID, q.ID); err != nil {
		return err
	}
	now, _, err := metadata.Read[metadata.GroupRecord](ctx, meta, metadata.Groups, metadata.GroupKey(g.Queue, g.Spec.Name), metadata.Serial)
	if err != nil || !gone(now, g.ID) {
		return err
	}
	if err := remove(ctx, meta, name.Queue); err != nil {
		return err
	}
	return errDeleted(g)
}

// followCopies has the retry queue kept in as many copies and as durably as its queue is now: an update of the queue
// that came after that was read has not found the retry queue. Of updates meanwhile the last one is followed last.
func followCopies(ctx context.Context, meta metadata.Store, queue, retry core.QueueID) error {
	for range maxTries {
		of, _, err := metadata.Read[metadata.QueueRecord](ctx, meta, metadata.Queues, metadata.QueueKey(queue), metadata.Quorum)
		if err != nil {
			return err
		}
		behind := false
		if _, err := metadata.Change(ctx, meta, metadata.Queues, metadata.QueueKey(retry), func(q *metadata.QueueRecord) error {
			if behind = q.Spec.Status != core.StatusDeleted && !q.Spec.SameCopies(of.Spec); !behind {
				return metadata.ErrNoChange
			}
			q.Spec = q.Spec.WithCopies(of.Spec)
			return nil
		}); err != nil || !behind {
			return err
		}
	}
	return core.Errorf(core.CodeUnavailable, "queue %s is being changed all the time; try again", queue)
}

// claim makes the path name the queue of a group. That of another group goes while the name is this group's: the other
// one was deleted before. Ids do not say which is the newer one, for they come from several clocks.
func claim(ctx context.Context, meta metadata.Store, name metadata.NameRecord, g metadata.GroupRecord) error {
	key := metadata.NameKey(name.Spec.Path)
	for range maxTries {
		if err := metadata.Create(ctx, meta, metadata.Names, key, name); core.CodeOf(err) != core.CodeExists {
			return err
		}
		var before metadata.NameRecord
		now, cerr := metadata.Change(ctx, meta, metadata.Names, key, func(n *metadata.NameRecord) error {
			if before = *n; !n.Queue.IsZero() {
				return metadata.ErrNoChange
			}
			*n = name
			return nil
		})
		switch {
		case core.CodeOf(cerr) == core.CodeNotFound: // the older queue was deleted meanwhile
			continue
		case cerr != nil:
			return cerr
		case now.Queue == name.Queue:
			return nil
		}
		is, _, rerr := metadata.Read[metadata.GroupRecord](ctx, meta, metadata.Groups, metadata.GroupKey(g.Queue, g.Spec.Name), metadata.Serial)
		switch {
		case rerr != nil:
			return rerr
		case gone(is, g.ID):
			return errDeleted(g)
		}
		if cerr := remove(ctx, meta, before.Queue); cerr != nil && core.CodeOf(cerr) != core.CodeNotFound {
			return cerr
		}
		if _, cerr := metadata.Change(ctx, meta, metadata.Names, key, func(n *metadata.NameRecord) error {
			if n.Queue != before.Queue {
				return metadata.ErrNoChange
			}
			*n = metadata.NameRecord{}
			return nil
		}); cerr != nil && core.CodeOf(cerr) != core.CodeNotFound {
			return cerr
		}
	}
	return core.Errorf(core.CodeUnavailable, "queue %s is being made and deleted all the time; try again", name.Spec.Path)
}

// remove marks a queue as deleted; controllers remove its extents.
func remove(ctx context.Context, meta metadata.Store, id core.QueueID) error {
	_, err := metadata.Change(ctx, meta, metadata.Queues, metadata.QueueKey(id), func(q *metadata.QueueRecord) error {
		q.Spec.Status = core.StatusDeleted
		return nil
	})
	return err
}
