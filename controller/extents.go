package controller

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/columbamq/columba/controller/placement"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// extent is a live extent as this controller knows it. The seal row is the truth; this is its cache.
type extent struct {
	metadata.ExtentRecord
	state core.ExtentState
	l     core.Seq
	told  bool // every holder knows the end
}

// extents are the live ones of all queues. Safe for concurrent use.
type extents struct {
	mu struct {
		sync.Mutex
		byID    map[core.ExtentID]*extent
		byQueue map[core.QueueID]map[core.ExtentID]*extent
	}
}

func newExtents() *extents {
	e := &extents{}
	e.mu.byID = make(map[core.ExtentID]*extent)
	e.mu.byQueue = make(map[core.QueueID]map[core.ExtentID]*extent)
	return e
}

func (x *extents) put(e extent) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.byID[e.ID] = &e
	q := x.mu.byQueue[e.Queue]
	if q == nil {
		q = make(map[core.ExtentID]*extent)
		x.mu.byQueue[e.Queue] = q
	}
	q[e.ID] = &e
}

// remove forgets an extent that is retired.
func (x *extents) remove(id core.ExtentID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.mu.byID[id]
	if e == nil {
		return
	}
	delete(x.mu.byID, id)
	delete(x.mu.byQueue[e.Queue], id)
	if len(x.mu.byQueue[e.Queue]) == 0 {
		delete(x.mu.byQueue, e.Queue)
	}
}

// change edits the cached state of an extent that is there.
func (x *extents) change(id core.ExtentID, f func(*extent)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.mu.byID[id]; e != nil {
		f(e)
	}
}

func (x *extents) get(id core.ExtentID) (extent, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.mu.byID[id]; e != nil {
		return *e, true
	}
	return extent{}, false
}

// of a queue, oldest first.
func (x *extents) of(queue core.QueueID) []extent {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make([]extent, 0, len(x.mu.byQueue[queue]))
	for _, e := range x.mu.byQueue[queue] {
		out = append(out, *e)
	}
	slices.SortFunc(out, func(a, b extent) int { return slices.Compare(a.ID.ID[:], b.ID.ID[:]) })
	return out
}

// queues that have live extents.
func (x *extents) queues() []core.QueueID {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make([]core.QueueID, 0, len(x.mu.byQueue))
	for q := range x.mu.byQueue {
		out = append(out, q)
	}
	return out
}

// unfinished are those whose seal is wanted, under way or not told to all.
func (x *extents) unfinished() []extent {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []extent
	for _, e := range x.mu.byID {
		if !e.told {
			out = append(out, *e)
		}
	}
	return out
}

// load fills the cache from the work hints and the seal rows.
func (h *Host) load(ctx context.Context) error {
	open := make(map[core.ExtentID]bool)
	for r, err := range metadata.All[metadata.ExtentRecord](ctx, h.deps.Meta, metadata.Work, metadata.PartitionOpen, metadata.Quorum) {
		if err != nil {
			return err
		}
		open[r.Value.ID] = true
	}
	for r, err := range metadata.All[metadata.ExtentRecord](ctx, h.deps.Meta, metadata.Work, metadata.PartitionLive, metadata.Quorum) {
		if err != nil {
			return err
		}
		e := extent{ExtentRecord: r.Value, state: core.ExtentOpen, told: !open[r.Value.ID]}
		seal, _, err := metadata.Read[metadata.SealRecord](ctx, h.deps.Meta, metadata.Seals, metadata.SealKey(e.ID), metadata.Serial)
		switch {
		case err == nil:
			e.state, e.l = seal.State, seal.L
			e.told = e.told && e.state.HasEnd()
		case core.CodeOf(err) != core.CodeNotFound:
			return err
		default:
			e.told = false
		}
		h.extents.put(e)
	}
	return nil
}

// ensureKey names requests that want the same extent.
type ensureKey struct {
	queue core.QueueID
	run   core.RunID
	kind  core.ExtentKind
}

// ensuring is a creation that several requests wait for.
type ensuring struct {
	done   chan struct{}
	extent core.Extent
	err    error
}

// ensureExtent answers an open extent of that run of the input host which is not among have, and creates one if there is none.
func (h *Host) ensureExtent(ctx context.Context, queue core.QueueID, input core.HostID, run core.RunID, kind core.ExtentKind, have []core.ExtentID) (core.Extent, error) {
	for _, e := range h.extents.of(queue) {
		if e.state != core.ExtentOpen || e.InputRun != run || e.Kind != kind || slices.Contains(have, e.ID) {
			continue
		}
		if h.reachable(e.Extent) {
			return e.Extent, nil
		}
		h.sealSoon(e.Extent, "a store is gone") // nobody writes to it, and with this replica set nobody can
	}
	key := ensureKey{queue, run, kind}
	h.mu.Lock()
	if e := h.mu.ensures[key]; e != nil {
		h.mu.Unlock()
		select {
		case <-e.done:
			return e.extent, e.err
		case <-ctx.Done():
			return core.Extent{}, core.Errorf(core.CodeDeadline, "create an extent: %w", context.Cause(ctx))
		}
	}
	e := &ensuring{done: make(chan struct{})}
	h.mu.ensures[key] = e
	h.mu.Unlock()
	e.extent, e.err = h.createExtent(ctx, queue, input, run, kind)
	h.mu.Lock()
	delete(h.mu.ensures, key)
	h.mu.Unlock()
	close(e.done)
	return e.extent, e.err
}

// reachable reports whether all its stores are there.
func (h *Host) reachable(e core.Extent) bool {
	return !slices.ContainsFunc(e.Replicas, func(store core.HostID) bool { return h.address("storehost", store) == "" })
}

func (h *Host) createExtent(ctx context.Context, queue core.QueueID, input core.HostID, run core.RunID, kind core.ExtentKind) (core.Extent, error) {
	q, _, err := metadata.Read[metadata.QueueRecord](ctx, h.deps.Meta, metadata.Queues, metadata.QueueKey(queue), metadata.One)
	if err != nil {
		return core.Extent{}, core.Errorf(core.CodeOf(err), "create an extent: %w", err)
	}
	if q.Spec.Status == core.StatusDeleted {
		return core.Extent{}, core.Errorf(core.CodeNotFound, "queue %s was deleted", q.Spec.Path)
	}
	now := h.deps.now()
	id := core.ExtentID{ID: core.NewID(now)}
	replicas := placement.Replicas(id.String(), q.Spec.Replicas, h.candidates("storehost"))
	if len(replicas) < q.Spec.MinReplicas {
		return core.Extent{}, core.Errorf(core.CodeUnavailable, "queue %s wants at least %d replicas, %d stores are there", q.Spec.Path, q.Spec.MinReplicas, len(replicas))
	}
	r := metadata.ExtentRecord{
		Extent: core.Extent{
			ID: id, Queue: queue, Kind: kind, Durability: q.Spec.Durability, Input: input, InputRun: run,
			Token: core.WriterToken{ID: core.NewID(now)}, Replicas: replicas,
		},
		Created: now,
	}
	if err := h.writeExtent(ctx, r, now); err != nil {
		return core.Extent{}, core.Errorf(core.CodeOf(err), "create extent %s: %w", id, err)
	}
	h.extents.put(extent{ExtentRecord: r, state: core.ExtentOpen})
	h.metrics.created.Inc()
	h.shares.touch(queue)
	return r.Extent, nil
}

// writeExtent writes the hints first: a hint without an extent is found and sealed, an extent without a hint would be overlooked.
func (h *Host) writeExtent(ctx context.Context, r metadata.ExtentRecord, now time.Time) error {
	for _, partition := range []string{metadata.PartitionLive, metadata.PartitionOpen} {
		if err := metadata.Write(ctx, h.deps.Meta, metadata.Work, metadata.WorkKey(partition, r.ID), r, now, 0, metadata.One); err != nil {
			return err
		}
	}
	return metadata.Write(ctx, h.deps.Meta, metadata.Extents, metadata.ExtentKey(r.Queue, r.ID), r, now, 0, metadata.One)
}
