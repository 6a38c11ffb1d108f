package frontend

import (
	"context"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// passCopiesOn has the built-in queues of a queue's groups, and of groups on these, kept in as many copies and as
// durably as the queue: nobody can say so for each of them. It may be done again. Of updates that overtake each other
// the last one is passed on last.
func (s *service) passCopiesOn(ctx context.Context, q metadata.QueueRecord) error {
	for {
		if err := s.setBuiltIn(ctx, q.ID, q.Spec); err != nil {
			return err
		}
		now, _, err := metadata.Read[metadata.QueueRecord](ctx, s.meta, metadata.Queues, metadata.QueueKey(q.ID), metadata.Serial)
		switch {
		case core.CodeOf(err) == core.CodeNotFound:
			return nil
		case err != nil:
			return core.Errorf(core.CodeOf(err), "look whether queue %s was changed meanwhile: %w", q.Spec.Path, err)
		case now.Spec.SameCopies(q.Spec) || now.Spec.Status == core.StatusDeleted:
			return nil
		}
		q = now
	}
}

// followCopies is for a built-in queue that has just been made. An update of its queue that came after that was read
// has not found the built-in queue.
func (s *service) followCopies(ctx context.Context, queue core.QueueID, built metadata.QueueRecord) error {
	now, _, err := metadata.Read[metadata.QueueRecord](ctx, s.meta, metadata.Queues, metadata.QueueKey(queue), metadata.Quorum)
	switch {
	case err != nil:
		return core.Errorf(core.CodeOf(err), "look whether the queue of %s was changed meanwhile: %w", built.Spec.Path, err)
	case now.Spec.SameCopies(built.Spec) || now.Spec.Status == core.StatusDeleted:
		return nil
	}
	return s.passCopiesOn(ctx, now)
}

// setBuiltIn sets the copies of the built-in queues of a queue's groups, and of groups on these.
func (s *service) setBuiltIn(ctx context.Context, queue core.QueueID, of core.QueueSpec) error {
	for g, err := range metadata.All[metadata.GroupRecord](ctx, s.meta, metadata.Groups, queue.String(), metadata.Serial) {
		if err != nil {
			return core.Errorf(core.CodeOf(err), "list the groups of queue %s: %w", of.Path, err)
		}
		if g.Value.Spec.Status == core.StatusDeleted {
			continue
		}
		for _, built := range []core.QueueID{g.Value.DLQ, g.Value.Retry} {
			if err := s.setCopies(ctx, built, of); err != nil {
				return core.Errorf(core.CodeOf(err), "the built-in queues of group %s do not have the same copies yet: %w", g.Key.Row, err)
			}
		}
		if g.Value.DLQ.IsZero() {
			continue
		}
		if err := s.setBuiltIn(ctx, g.Value.DLQ, of); err != nil {
			return err
		}
	}
	return nil
}

// setCopies of a built-in queue, if it was made.
func (s *service) setCopies(ctx context.Context, queue core.QueueID, of core.QueueSpec) error {
	if queue.IsZero() {
		return nil
	}
	_, err := metadata.Change(ctx, s.meta, metadata.Queues, metadata.QueueKey(queue), func(q *metadata.QueueRecord) error {
		if q.Spec.SameCopies(of) || q.Spec.Status == core.StatusDeleted {
			return metadata.ErrNoChange
		}
		q.Spec = q.Spec.WithCopies(of)
		return nil
	})
	if core.CodeOf(err) == core.CodeNotFound {
		return nil
	}
	return err
}

// copies is the cluster's setting for queues created without numbers of their own. The first frontend of a cluster
// makes it from its configuration.
type copies struct {
	Replicas    int `json:"replicas"`
	MinReplicas int `json:"min_replicas"`
}

const settingCopies = "copies"

// loadCopies reads the cluster's setting, and makes it in a new cluster.
func (s *service) loadCopies(ctx context.Context) error {
	mine := copies{s.cfg.Replicas, s.cfg.MinReplicas}
	c, _, err := metadata.Read[copies](ctx, s.meta, metadata.Settings, metadata.SettingKey(settingCopies), metadata.Serial)
	if core.CodeOf(err) == core.CodeNotFound {
		c = mine
		if err = metadata.Create(ctx, s.meta, metadata.Settings, metadata.SettingKey(settingCopies), c); core.CodeOf(err) == core.CodeExists {
			c, _, err = metadata.Read[copies](ctx, s.meta, metadata.Settings, metadata.SettingKey(settingCopies), metadata.Serial)
		}
	}
	if err != nil {
		return core.Errorf(core.CodeOf(err), "the cluster's setting for replicas: %w", err)
	}
	if c != mine {
		s.log.Warn("the default number of replicas was fixed when the cluster was first started, and this process's has no effect: "+
			"name --replicas and --min-replicas when you create a queue that shall have others",
			"replicas", c.Replicas, "min_replicas", c.MinReplicas, "no_effect", mine.Replicas)
	}
	s.copies.Store(&c)
	return nil
}
