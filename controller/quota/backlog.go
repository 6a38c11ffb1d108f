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

// measure looks at the backlogs that the limits are about and that are not known freshly. Looking takes a tenth of the time at most.
func (k *Keeper) measure(ctx context.Context, queues []asked, limits map[string]core.NamespaceSpec) error {
	var look []core.QueueID
	names := make(map[string]bool)
	for _, q := range queues {
		name := core.Namespace(q.spec.Path)
		if limits[name].BacklogBytes > 0 && !names[name] {
			names[name] = true
			listed, err := k.list(ctx, name)
			if err != nil {
				return err
			}
			look = append(look, listed...)
		}
		if q.spec.MaxBacklog > 0 || names[name] { // perhaps made since the list was
			look = append(look, q.id)
		}
	}
	for _, id := range look {
		if err := k.look(ctx, id); err != nil {
			return core.Errorf(core.CodeOf(err), "measure the backlog of queue %s: %w", id, err)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, q := range queues {
		if name := core.Namespace(q.spec.Path); names[name] {
			b := k.namespaceLocked(name, k.now())
			b.listed = with(b.listed, q.id)
		}
	}
	return nil
}

func with(list []core.QueueID, id core.QueueID) []core.QueueID {
	for _, have := range list {
		if have == id {
			return list
		}
	}
	return append(list[:len(list):len(list)], id)
}

// list are the users' queues of a namespace, which may lack the newest.
func (k *Keeper) list(ctx context.Context, name string) ([]core.QueueID, error) {
	now := k.now()
	k.mu.Lock()
	b := k.namespaceLocked(name, now)
	listed, at := b.listed, b.listedAt
	k.mu.Unlock()
	if now.Sub(at) < listFor {
		return listed, nil
	}
	listed = nil
	for after := ""; ; {
		rows, more, err := metadata.Prefix[metadata.NameRecord](ctx, k.meta, metadata.Names, metadata.PartitionPath, name+"/", after, pageSize, metadata.One)
		if err != nil {
			return nil, core.Errorf(core.CodeOf(err), "list the queues of namespace %s: %w", name, err)
		}
		for _, r := range rows {
			if !r.Value.Queue.IsZero() && r.Value.Owner.IsZero() {
				listed = append(listed, r.Value.Queue)
			}
		}
		if !more || len(rows) == 0 {
			break
		}
		after = rows[len(rows)-1].Key.Row
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	b = k.namespaceLocked(name, now)
	b.listed, b.listedAt = listed, now
	return listed, nil
}

// look measures one queue's backlog, unless that was done a moment ago.
func (k *Keeper) look(ctx context.Context, queue core.QueueID) error {
	began := k.now()
	k.mu.Lock()
	b := k.queueLocked(queue)
	b.used = began
	done := began.Sub(b.looked) < max(fresh, 10*b.took)
	k.mu.Unlock()
	if done {
		return nil
	}
	extents, err := k.stored(ctx, queue)
	if err != nil {
		return err
	}
	found, err := k.behind(ctx, queue, extents)
	if err != nil {
		return err
	}
	known, open, writers := make(map[core.ExtentID]bool), make(map[core.ExtentID]bool), make(map[core.RunID]struct{})
	for _, e := range extents {
		known[e.ID], open[e.ID] = true, !e.State.HasEnd()
		if open[e.ID] {
			writers[e.InputRun] = struct{}{}
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	b = k.queueLocked(queue)
	now := k.now()
	b.backlog, b.writers, b.looked, b.took = found, writers, began, now.Sub(began)
	for id, f := range b.fills {
		late := !known[id] && !k.Alone && now.Sub(f.told) < quota.LeaseFor // its row may not be on the replica that was read
		if !open[id] && !late {                                            // it has its end, or is gone
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
