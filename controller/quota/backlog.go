package quota

import (
	"context"
	"time"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/quota"
	"github.com/columbamq/columba/metadata"
)

// backlog is what the groups of a queue have before them, as of the last look.
type backlog struct {
	ended  uint64 // bytes of all extents that have their end
	groups []behind
}

// behind is what one group has not consumed.
type behind struct {
	ended   uint64                   // bytes, of extents that have their end; a part of one by the number of its messages
	settled map[core.ExtentID]uint64 // messages consumed of the others
}

// size is the backlog's, with what input hosts have said of their open extents since: of the group that is furthest
// behind, and without a group all that is stored. Messages on their way to the stores count, too.
func (b *queueBook) size(now time.Time) (bytes uint64) {
	open := func(settled map[core.ExtentID]uint64) (sum uint64) {
		for id, f := range b.fills {
			sum += rest(f.bytes, uint64(f.last), settled[id])
		}
		return sum
	}
	if len(b.backlog.groups) == 0 {
		bytes = b.backlog.ended + open(nil)
	}
	for _, g := range b.backlog.groups {
		bytes = max(bytes, g.ended+open(g.settled))
	}
	for run, p := range b.pending {
		if now.After(p.until) {
			delete(b.pending, run)
			continue
		}
		bytes += p.bytes
	}
	return bytes
}

// rest is what is left of bytes of so many messages when some are consumed.
func rest(bytes, messages, consumed uint64) uint64 {
	if messages == 0 || consumed >= messages {
		return 0
	}
	return uint64(float64(bytes) * float64(messages-consumed) / float64(messages))
}

// look measures the backlog of one queue of a namespace.
func (k *Keeper) look(ctx context.Context, namespace string, queue core.QueueID, t tenure) error {
	began := k.now()
	k.mu.Lock()
	b := k.queueLocked(queue)
	b.tried, b.used, b.namespace = began, began, namespace
	k.mu.Unlock()
	extents, err := k.stored(ctx, queue)
	if err != nil {
		return core.Errorf(core.CodeOf(err), "measure the backlog of queue %s: %w", queue, err)
	}
	found, err := k.behind(ctx, queue, extents)
	if err != nil {
		return core.Errorf(core.CodeOf(err), "measure the backlog of queue %s: %w", queue, err)
	}
	known, ended, writers := make(map[core.ExtentID]bool), make(map[core.ExtentID]struct{}), make(map[core.RunID]struct{})
	for _, e := range extents {
		known[e.ID] = true
		if e.State.HasEnd() {
			ended[e.ID] = struct{}{}
		} else {
			writers[e.InputRun] = struct{}{}
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	b = k.queueLocked(queue)
	if b.measured(t) && b.looked.After(began) { // by another survey meanwhile
		return nil
	}
	b.backlog, b.ended, b.writers, b.looked, b.lookedIn = found, ended, writers, began, t.handovers
	for id, f := range b.fills {
		if !known[id] { // it is gone, unless it is so new that the replica that was read lacks its row, or the catalog did
			if f.told.Before(began) && (k.Alone || began.Sub(f.told) >= quota.LeaseFor) {
				delete(b.fills, id)
			}
		} else if _, over := ended[id]; over {
			delete(b.fills, id)
		}
	}
	return nil
}

// behind reads how far each group of a queue is.
func (k *Keeper) behind(ctx context.Context, queue core.QueueID, extents []catalog.Extent) (out backlog, err error) {
	for _, e := range extents {
		out.ended += e.Bytes
	}
	if len(extents) == 0 {
		return out, nil
	}
	for g, err := range metadata.All[metadata.GroupRecord](ctx, k.meta, metadata.Groups, queue.String(), metadata.One) {
		if err != nil {
			return out, err
		}
		if g.Value.Spec.Status == core.StatusDeleted || !g.Value.Started {
			continue
		}
		b, err := k.behindOf(ctx, g.Value, extents)
		if err != nil {
			return out, err
		}
		out.groups = append(out.groups, b)
	}
	return out, nil
}

func (k *Keeper) behindOf(ctx context.Context, g metadata.GroupRecord, extents []catalog.Extent) (behind, error) {
	b := behind{settled: make(map[core.ExtentID]uint64)}
	consumed, err := metadata.Consumed(ctx, k.meta, g.ID, g.Epoch, metadata.One)
	if err != nil {
		return b, err
	}
	for _, e := range extents {
		if _, done := consumed[e.ID]; done && e.State.HasEnd() {
			continue
		}
		n, err := k.Settled(ctx, g, e.ID)
		if err != nil {
			return b, err
		}
		if e.State.HasEnd() {
			b.ended += rest(e.Bytes, uint64(e.L), n)
		} else {
			b.settled[e.ID] = n
		}
	}
	return b, nil
}
