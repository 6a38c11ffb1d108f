package frontend

import (
	"context"
	"errors"
	"fmt"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/deletion"
)

// A path names a queue by two rows that cannot change together. The name row comes first and carries all that the
// queue's row will hold, so that whoever meets a name without a queue can finish it:
//
//	free ──name row──▶ half made ──queue row──▶ live ──queue row: deleted──▶ dying ──groups, ends of extents, then no name row──▶ free

// maxTries bounds how often a call begins again because others changed the same name.
const maxTries = 8

// copyOf is the live queue behind a path as one copy of the metadata has it; CodeNotFound.
func (s *service) copyOf(ctx context.Context, path string) (metadata.QueueRecord, error) {
	name, _, err := metadata.Read[metadata.NameRecord](ctx, s.meta, metadata.Names, metadata.NameKey(path), metadata.One)
	if err != nil {
		return metadata.QueueRecord{}, err
	}
	q, _, err := metadata.Read[metadata.QueueRecord](ctx, s.meta, metadata.Queues, metadata.QueueKey(name.Queue), metadata.One)
	if err == nil && q.Spec.Status == core.StatusDeleted {
		err = noQueue(path)
	}
	return q, err
}

// queueToShow is the live queue behind a path as it is now, or as one copy has it while no majority of the metadata
// answers. It is for calls that change nothing.
func (s *service) queueToShow(ctx context.Context, path string) (metadata.QueueRecord, error) {
	return metadata.SerialOrOne(ctx, s.meta, func(ctx context.Context, c metadata.Consistency) (metadata.QueueRecord, error) {
		if c == metadata.One {
			return s.copyOf(ctx, path)
		}
		_, q, err := s.resolve(ctx, path)
		return q, err
	})
}

// resolve is the live queue behind a path as it is now; CodeNotFound. A half-made queue is finished.
func (s *service) resolve(ctx context.Context, path string) (metadata.NameRecord, metadata.QueueRecord, error) {
	name, q, err := s.entry(ctx, path)
	if err == nil && q.Spec.Status == core.StatusDeleted {
		err = noQueue(path)
	}
	return name, q, err
}

// entry is the queue behind a path, which may be dying; CodeNotFound when the path is free.
func (s *service) entry(ctx context.Context, path string) (metadata.NameRecord, metadata.QueueRecord, error) {
	name, _, err := metadata.Read[metadata.NameRecord](ctx, s.meta, metadata.Names, metadata.NameKey(path), metadata.Serial)
	switch {
	case core.CodeOf(err) == core.CodeNotFound || err == nil && name.Queue.IsZero():
		return name, metadata.QueueRecord{}, noQueue(path)
	case err != nil:
		return name, metadata.QueueRecord{}, core.Errorf(core.CodeOf(err), "look up queue %s: %w", path, err)
	}
	q, err := s.finish(ctx, name)
	return name, q, err
}

// finish reads the queue of a name, and makes its row when it is missing.
func (s *service) finish(ctx context.Context, name metadata.NameRecord) (metadata.QueueRecord, error) {
	q, _, err := s.finished(ctx, name, s.makeQueue)
	return q, err
}

// finished is finish. made: this call has made the row.
func (s *service) finished(ctx context.Context, name metadata.NameRecord, create maker) (q metadata.QueueRecord, made bool, err error) {
	key := metadata.QueueKey(name.Queue)
	q, _, err = metadata.Read[metadata.QueueRecord](ctx, s.meta, metadata.Queues, key, metadata.Serial)
	if core.CodeOf(err) == core.CodeNotFound {
		q, err = create(ctx, name)
		if made = err == nil; core.CodeOf(err) == core.CodeExists {
			q, _, err = metadata.Read[metadata.QueueRecord](ctx, s.meta, metadata.Queues, key, metadata.Serial)
		}
	}
	var undone unmade
	switch {
	case errors.As(err, &undone):
		return q, false, undone.error
	case err != nil:
		return q, false, core.Errorf(core.CodeOf(err), "look up queue %s: %w", name.Spec.Path, err)
	}
	return q, made, nil
}

// sameQueue reports whether two names are to be of queues with the same settings and owner.
func sameQueue(a, b metadata.NameRecord) bool { return a.Spec == b.Spec && a.Owner == b.Owner }

// halfMade is the error of a call that has written the name of a queue, and perhaps not its row.
func halfMade(name metadata.NameRecord, err error) error {
	return core.Partly(err, fmt.Sprintf("queue %s is half made, so its path is taken", name.Spec.Path), "create it again with the same settings")
}

// makeQueue makes the row of a name's queue.
func (s *service) makeQueue(ctx context.Context, name metadata.NameRecord) (metadata.QueueRecord, error) {
	q := name.Record()
	return q, metadata.Create(ctx, s.meta, metadata.Queues, metadata.QueueKey(name.Queue), q)
}

// maker makes the row of a name's queue; CodeExists when another call has made it.
type maker func(ctx context.Context, name metadata.NameRecord) (metadata.QueueRecord, error)

// unmade is the error of a maker that has deleted the name instead.
type unmade struct{ error }

// fill makes the queue of a name that this call has written; CodeConflict if it was deleted meanwhile.
func (s *service) fill(ctx context.Context, name metadata.NameRecord, create maker) (metadata.QueueRecord, error) {
	q, err := create(ctx, name)
	var undone unmade
	if errors.As(err, &undone) {
		return q, undone.error
	}
	if core.CodeOf(err) == core.CodeExists { // another call has finished it, and may have deleted it
		if q, err = s.finish(ctx, name); err == nil && q.Spec.Status == core.StatusDeleted {
			return q, core.Errorf(core.CodeConflict, "queue %s was deleted meanwhile; create it again", name.Spec.Path)
		}
	}
	return q, halfMade(name, err)
}

// claim makes name's path name its queue and makes the queue; CodeExists when the path names another live one. replace
// says whether such a one is to be deleted instead; nil for never. A half-made queue of the same settings is finished:
// an earlier call may have failed in between. create makes the queue behind the name.
func (s *service) claim(ctx context.Context, name metadata.NameRecord, create maker, replace func(metadata.QueueRecord) (bool, error)) (metadata.QueueRecord, error) {
	path := name.Spec.Path
	key := metadata.NameKey(path)
	for range maxTries {
		err := metadata.Create(ctx, s.meta, metadata.Names, key, name)
		if err == nil {
			return s.fill(ctx, name, create)
		}
		if core.CodeOf(err) != core.CodeExists {
			return metadata.QueueRecord{}, err
		}
		now, err := metadata.Change(ctx, s.meta, metadata.Names, key, func(n *metadata.NameRecord) error {
			if !n.Queue.IsZero() { // else an earlier version, or a retry queue, left it
				return metadata.ErrNoChange
			}
			*n = name
			return nil
		})
		if core.CodeOf(err) == core.CodeNotFound { // its queue was deleted meanwhile
			continue
		}
		if err != nil {
			return metadata.QueueRecord{}, err
		}
		if now.Queue == name.Queue {
			return s.fill(ctx, name, create)
		}
		q, made, err := s.finished(ctx, now, create)
		switch {
		case err != nil || made && sameQueue(now, name):
			return q, err
		}
		if q.Spec.Status != core.StatusDeleted {
			may := false
			if replace != nil {
				if may, err = replace(q); err != nil {
					return q, err
				}
			}
			if !may {
				return q, core.Errorf(core.CodeExists, "queue %s exists", path)
			}
		}
		if err := s.deletion().Queue(ctx, now); err != nil {
			return q, err
		}
	}
	return metadata.QueueRecord{}, core.Errorf(core.CodeUnavailable, "queue %s is being created and deleted all the time; try again", path)
}

// deletion deletes queues and groups; controllers seal their extents.
func (s *service) deletion() deletion.Deletion {
	return deletion.Deletion{Meta: s.meta, Now: s.now, Seal: func(ctx context.Context, e core.Extent) error {
		seal := &pb.SealExtentRequest{Extent: convert.ExtentToProto(e), Reason: "queue deleted"}
		_, err := ask(ctx, s.ranked(roleController, e.Queue.ID), roleController, seal, func(addr string) rpc[pb.SealExtentRequest, pb.SealExtentResponse] {
			return s.peers.Controller(addr).SealExtent
		})
		return err
	}}
}

func noQueue(path string) error {
	return core.Errorf(core.CodeNotFound, "queue %s does not exist", path)
}
