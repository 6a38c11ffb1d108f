// Package deletion owns the deletion of queues and groups: the order in which their rows change. A frontend begins one;
// a controller finishes it from the hint in the work table when the frontend died.
package deletion

import (
	"context"
	"fmt"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// Deletion deletes queues and groups. Every step may be done again, and by several callers at once. Safe for concurrent
// use.
type Deletion struct {
	Meta metadata.Store
	Now  func() time.Time
	Seal func(ctx context.Context, e core.Extent) error // of a queue that is marked deleted
}

// Queue deletes a name's queue with its groups and frees the path, once nothing can be acknowledged into the queue any
// more. Else CodeUnavailable or, when another step fails after the queue was marked deleted, CodeUnknown; controllers
// go on with it:
//
//	hint ──▶ queue row: deleted ──▶ groups, each with its built-in queues ──▶ ends of extents ──▶ no name row ──▶ hint: done
func (d Deletion) Queue(ctx context.Context, name metadata.NameRecord) error {
	at := d.Now()
	key := metadata.DeletedQueueKey(name.Queue)
	hint := metadata.DeletedQueueRecord{Queue: name.Queue, Path: name.Spec.Path, At: at.UTC()}
	if err := metadata.Write(ctx, d.Meta, metadata.Work, key, hint, at, 0, metadata.Quorum); err != nil {
		return err
	}
	if err := d.queue(ctx, name); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, hintTimeout)
	defer cancel()
	hint.Done = true
	_ = metadata.Write(ctx, d.Meta, metadata.Work, key, hint, at.Add(metadata.Tick), 0, metadata.Quorum) // else a controller finds that nothing is left to do
	return nil
}

// Unmade deletes a name whose queue is not made yet, as Queue does. made: another call has made the queue, and nothing
// is deleted. The first row of the queue decides, so a queue that was answered to a caller never goes.
func (d Deletion) Unmade(ctx context.Context, name metadata.NameRecord) (made bool, err error) {
	at, key := d.Now(), metadata.QueueKey(name.Queue)
	hint := metadata.DeletedQueueRecord{Queue: name.Queue, Path: name.Spec.Path, At: at.UTC()}
	if err := metadata.Write(ctx, d.Meta, metadata.Work, metadata.DeletedQueueKey(name.Queue), hint, at, 0, metadata.Quorum); err != nil {
		return false, err
	}
	row := name.Record()
	row.Spec.Status = core.StatusDeleted
	if err := metadata.Create(ctx, d.Meta, metadata.Queues, key, row); err != nil {
		if core.CodeOf(err) != core.CodeExists {
			return false, err
		}
		q, _, err := metadata.Read[metadata.QueueRecord](ctx, d.Meta, metadata.Queues, key, metadata.Serial)
		if err != nil || q.Spec.Status != core.StatusDeleted {
			return err == nil, err
		}
	}
	return false, d.Queue(ctx, name)
}

// hintTimeout bounds the change of a hint after all else is done.
const hintTimeout = time.Second

// Resume finishes the deletion of a queue from its hint, unless that has not begun: then begun is false. Of one that is
// done it deletes the groups only which were created beside it, after it had listed the groups.
func (d Deletion) Resume(ctx context.Context, hint metadata.DeletedQueueRecord) (begun bool, err error) {
	q, _, err := metadata.Read[metadata.QueueRecord](ctx, d.Meta, metadata.Queues, metadata.QueueKey(hint.Queue), metadata.Serial)
	if core.CodeOf(err) == core.CodeNotFound || err == nil && q.Spec.Status != core.StatusDeleted {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	name := metadata.NameRecord{Queue: q.ID, Spec: q.Spec, Owner: q.Owner, Home: q.Home}
	name.Spec.Path = hint.Path
	if hint.Done {
		return true, d.groups(ctx, name)
	}
	return true, d.queue(ctx, name)
}

// queue deletes a queue without a hint.
func (d Deletion) queue(ctx context.Context, name metadata.NameRecord) error {
	q, err := metadata.Change(ctx, d.Meta, metadata.Queues, metadata.QueueKey(name.Queue), func(q *metadata.QueueRecord) error {
		if q.Spec.Status == core.StatusDeleted {
			return metadata.ErrNoChange
		}
		q.Spec.Status = core.StatusDeleted
		return nil
	})
	if err != nil {
		return err
	}
	if err := d.groups(ctx, name); err != nil {
		return err
	}
	if q.Owner.IsZero() { // output hosts say whose built-in queue they mean, so what they append never belongs to another one of that path
		if err := d.fence(ctx, q); err != nil {
			return err
		}
	}
	return d.free(ctx, name)
}

// groups deletes the groups of a queue that is marked deleted.
func (d Deletion) groups(ctx context.Context, name metadata.NameRecord) error {
	for g, err := range metadata.All[metadata.GroupRecord](ctx, d.Meta, metadata.Groups, name.Queue.String(), metadata.Serial) {
		if err == nil {
			err = d.Group(ctx, g.Value)
		}
		if err != nil {
			return core.Partly(err, fmt.Sprintf("queue %s is deleted, but not all of its groups yet", name.Spec.Path), "")
		}
	}
	return nil
}

// maxTries bounds how often a row that others change is read again.
const maxTries = 8

// free deletes the name row of a queue, unless the name is another queue's by now.
func (d Deletion) free(ctx context.Context, name metadata.NameRecord) (err error) {
	key := metadata.NameKey(name.Spec.Path)
	for range maxTries {
		var n metadata.NameRecord
		var version metadata.Version
		if n, version, err = metadata.Read[metadata.NameRecord](ctx, d.Meta, metadata.Names, key, metadata.Serial); err != nil {
			break
		}
		if n.Queue != name.Queue {
			return nil
		}
		if err = metadata.Delete(ctx, d.Meta, metadata.Names, key, version); core.CodeOf(err) != core.CodeConflict {
			break
		}
	}
	if core.CodeOf(err) == core.CodeNotFound { // another call has deleted it
		return nil
	}
	return core.Partly(err, fmt.Sprintf("queue %s is deleted, but its path may not be free yet", name.Spec.Path), "")
}

// Group deletes a group, its dead letter queue and its retry queue. It may be done again, also after a new group of
// that name was made. CodeUnknown when a step fails after the group was marked deleted; controllers go on with it.
func (d Deletion) Group(ctx context.Context, g metadata.GroupRecord) error {
	if g.Spec.Status == core.StatusDeleted { // its hint came before
		return d.BuiltIn(ctx, g)
	}
	at := d.Now()
	hint := metadata.DeletedGroupRecord{Group: g.ID, Queue: g.Queue, Name: g.Spec.Name, At: at.UTC()}
	if err := metadata.Write(ctx, d.Meta, metadata.Work, metadata.DeletedGroupKey(g.ID), hint, at, 0, metadata.Quorum); err != nil {
		return err
	}
	now, err := metadata.Change(ctx, d.Meta, metadata.Groups, metadata.GroupKey(g.Queue, g.Spec.Name), func(now *metadata.GroupRecord) error {
		if now.ID != g.ID || now.Spec.Status == core.StatusDeleted {
			return metadata.ErrNoChange
		}
		now.Spec.Status = core.StatusDeleted
		return nil
	})
	if err != nil {
		return err
	}
	if now.ID == g.ID {
		g.Retry = now.Retry
	}
	return d.BuiltIn(ctx, g)
}

// BuiltIn deletes the dead letter queue and the retry queue of a deleted group.
func (d Deletion) BuiltIn(ctx context.Context, g metadata.GroupRecord) error {
	err := d.builtIn(ctx, core.RetryPath(g.Spec.Queue, g.Spec.Name), g.Retry)
	if err == nil && !g.Spec.OnDLQ() {
		err = d.builtIn(ctx, core.DLQPath(g.Spec.Queue, g.Spec.Name), g.DLQ)
	}
	return core.Partly(err, fmt.Sprintf("group %s of queue %s is deleted, but not yet its dead letter queue and retry queue", g.Spec.Name, g.Spec.Queue), "")
}

// Replaced deletes what is left of the built-in queues of a deleted group after another one, now, took its name. The
// paths are the newer group's only once it has such queues itself.
func (d Deletion) Replaced(ctx context.Context, group core.GroupID, now metadata.GroupRecord) error {
	g := metadata.GroupRecord{ID: group, Queue: now.Queue, Spec: now.Spec}
	left := func(path string) (core.QueueID, error) {
		name, _, err := metadata.Read[metadata.NameRecord](ctx, d.Meta, metadata.Names, metadata.NameKey(path), metadata.Serial)
		if core.CodeOf(err) == core.CodeNotFound || err == nil && name.Owner != group {
			return core.QueueID{}, nil
		}
		return name.Queue, err
	}
	var err error
	if g.Retry, err = left(core.RetryPath(now.Spec.Queue, now.Spec.Name)); err != nil {
		return err
	}
	if !now.Spec.OnDLQ() {
		if g.DLQ, err = left(core.DLQPath(now.Spec.Queue, now.Spec.Name)); err != nil {
			return err
		}
	}
	return d.BuiltIn(ctx, g)
}

// builtIn deletes a queue of a group, unless its path is another one's by now. A zero one was never made.
func (d Deletion) builtIn(ctx context.Context, path string, queue core.QueueID) error {
	if queue.IsZero() {
		return nil
	}
	name, _, err := metadata.Read[metadata.NameRecord](ctx, d.Meta, metadata.Names, metadata.NameKey(path), metadata.Serial)
	if core.CodeOf(err) == core.CodeNotFound || err == nil && name.Queue != queue {
		return nil
	}
	if err != nil {
		return err
	}
	if err := metadata.Create(ctx, d.Meta, metadata.Queues, metadata.QueueKey(queue), name.Record()); err != nil && core.CodeOf(err) != core.CodeExists { // it may be half made
		return err
	}
	return d.queue(ctx, name)
}
