package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/controller/placement"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// wish is what an input host asks for.
type wish struct {
	queue core.QueueID
	input core.HostID
	run   core.RunID
	kind  core.ExtentKind
	ahead core.Horizon    // of a timer extent
	have  []core.ExtentID // not these
	avoid []core.HostID   // stores that are slow or broken for it, the worst first

	minority bool // no majority of the metadata answers

	row   *metadata.QueueRecord // of the queue, if it was read for this wish already …
	given bool                  // … or the input host has it, which may be behind
}

// ensureKey names wishes that want the same extent.
type ensureKey struct {
	queue core.QueueID
	run   core.RunID
	ahead core.Horizon // "": of a log extent

	minority bool
}

func (w wish) key() ensureKey { return ensureKey{w.queue, w.run, w.ahead, w.minority} }

// String is a different text for each key.
func (k ensureKey) String() string { return fmt.Sprint(k.queue, k.run, k.ahead, k.minority) }

// creation is the last extent made for a key, and how many before it came to nothing at once.
type creation struct {
	extent core.ExtentID
	at     time.Time
	failed int
}

const (
	// atOnce: an extent that ended without a record within this time after its creation is a failure.
	atOnce = 2 * time.Second
	// freeFailures do not slow down the next creation; each further one doubles the pause.
	freeFailures = 3
	minBackOff   = 100 * time.Millisecond
	maxBackOff   = 5 * time.Second
)

// ensureExtent answers an open extent of that run of the input host which is not among those it has, and creates one if
// there is none. Of a deleted queue it answers none, CodeNotFound: whoever deletes a queue marks it at Quorum, then
// reads the create rows at Quorum, and seals these extents. An extent that is answered has its create row at Quorum,
// and the mark is looked for at Quorum after that. So either the deletion seals the extent, or nobody writes to it. An
// AP queue gets its extent without all that where no majority of the metadata answers (docs/adr/0065). docs/adr/0073
// says which calls wait for one another.
func (h *Host) ensureExtent(ctx context.Context, w wish) (e core.Extent, err error) {
	began := h.deps.now()
	defer func() {
		if err == nil && !e.ID.Time().Before(began.Truncate(time.Millisecond)) { // it is a new one
			h.metrics.creating.Observe(h.deps.now().Sub(began).Seconds())
		}
	}()
	h.hosts.heard(catalog.HostRun{Host: w.input, Run: w.run}, began)
	if !h.majority.Lacks() {
		e, err = h.openExtent(ctx, w)
		if h.cfg.Alone || core.CodeOf(err) != core.CodeNoMajority {
			return e, err
		}
	}
	w.minority = true
	return h.openExtent(ctx, w)
}

// queueAt reads the row of the queue for a wish: from a majority, or from one copy.
func (h *Host) queueAt(ctx context.Context, w wish) (q metadata.QueueRecord, err error) {
	if w.minority {
		return h.queueRow(ctx, w.queue)
	}
	err = h.withMajority(ctx, func(ctx context.Context) error {
		q, _, err = metadata.Read[metadata.QueueRecord](ctx, h.deps.Meta, metadata.Queues, metadata.QueueKey(w.queue), metadata.Quorum)
		return err
	})
	return q, err
}

// exists reads the row of the queue, and refuses a deleted one.
func (h *Host) exists(ctx context.Context, w wish) error {
	q, err := h.queueAt(ctx, w)
	if err == nil {
		err = existing(q)
	}
	if err != nil {
		return core.Errorf(core.CodeOf(err), "create an extent: %w", err)
	}
	return nil
}

// readRow reads the row of the queue for a wish, unless the wish has one.
func (h *Host) readRow(ctx context.Context, w *wish) error {
	if w.row != nil {
		return nil
	}
	q, err := h.queueAt(ctx, *w)
	if err == nil {
		w.row, w.given = &q, false
	}
	return err
}

// existing refuses a deleted queue.
func existing(q metadata.QueueRecord) error {
	if q.Spec.Status == core.StatusDeleted {
		return core.Errorf(core.CodeNotFound, "queue %s was deleted", q.Spec.Path)
	}
	return nil
}

// queueRow reads the row of a queue from one copy of the metadata. One that does not have the row may be behind, so a
// majority says whether the queue is there.
func (h *Host) queueRow(ctx context.Context, id core.QueueID) (metadata.QueueRecord, error) {
	q, _, err := metadata.Read[metadata.QueueRecord](ctx, h.deps.Meta, metadata.Queues, metadata.QueueKey(id), metadata.One)
	if core.CodeOf(err) == core.CodeNotFound {
		q, _, err = metadata.Read[metadata.QueueRecord](ctx, h.deps.Meta, metadata.Queues, metadata.QueueKey(id), metadata.Quorum)
	}
	return q, err
}

// openExtent is ensureExtent with a majority of the metadata, or without.
func (h *Host) openExtent(ctx context.Context, w wish) (core.Extent, error) {
	if w.given && (w.minority || h.majority.Missed()) { // else rows are written, and are to be removed, until a call shows that no majority answers
		w.row, w.given = nil, false
	}
	create := h.createExtent
	chained, err := h.chained(ctx, &w)
	if err != nil {
		return core.Extent{}, core.Errorf(core.CodeOf(err), "create an extent: %w", err)
	}
	if chained {
		create = h.ensureHead
		if w.given { // the head moves by a row from a majority, which is read beside it
			w.row = nil
		}
	}
	if chained && w.minority {
		return core.Extent{}, h.noMajority(w.queue)
	}
	for _, e := range h.extents.OpenOf(w.queue) {
		if chained || e.InputRun != w.run || e.Kind != w.kind || e.Horizon != w.ahead || slices.Contains(w.have, e.ID) || w.minority != (e.Minority == h.maker()) {
			continue
		}
		switch {
		case !h.writable(e.Extent, w.avoid):
			h.sealSoon(e.Extent, "a store is gone") // nobody writes to it, and with this replica set nobody can
		case e.Made: // else another controller may be about to unmake it
			if err := h.exists(ctx, w); err != nil {
				return core.Extent{}, err
			}
			return e.Extent, nil
		}
	}
	if len(w.avoid) > 0 {
		poke(h.describeNow) // what one host has met, others need not meet
	}
	made, err, _ := h.creating.Do(w.key().String(), func() (any, error) {
		// Others wait for it, for so long at most: it must not end with the first caller's patience.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.cfg.CallTimeout)
		defer cancel()
		e, err := create(ctx, w)
		if err == nil && chained {
			err = h.exists(ctx, w)
		}
		return e, err
	})
	return made.(core.Extent), err
}

// writable reports whether all its stores can be expected to take appends from that host.
func (h *Host) writable(e core.Extent, avoid []core.HostID) bool {
	for _, id := range e.Replicas {
		st, ok := h.stores.Get(id)
		if !ok || !st.Member || st.Silent() || slices.Contains(avoid, id) {
			return false
		}
		if want := e.Disk(id); !want.IsZero() && !st.Identity.Disk.IsZero() && want != st.Identity.Disk {
			return false
		}
	}
	return true
}

// choose fills in the replicas and their disks.
func (h *Host) choose(ctx context.Context, e *core.Extent, spec core.QueueSpec, avoid []core.HostID) error {
	need := placement.Need{Want: spec.Replicas, Min: spec.MinReplicas}
	members := h.deps.Members.Hosts("storehost")
	if h.stores.Fresh(members) {
		h.askStores(ctx, h.cfg.DescribeTimeout, func() bool { return !h.stores.Fresh(members) })
	}
	enough := func() bool {
		candidates, _ := h.storeCandidates(avoid)
		return countGood(candidates) >= need.Min || !h.stores.Silent(time.Time{}) && !h.stores.Refused(h.deps.now().Add(-refusalHolds))
	}
	if !enough() { // one may be back, or have space again, that nobody has asked yet
		h.askStores(ctx, askTimeout, enough)
	}
	candidates, full := h.storeCandidates(avoid)
	pardon(candidates, avoid, need.Min)
	e.Replicas = placement.Replicas(e.ID.String(), need, candidates)
	if n := len(e.Replicas); n < spec.MinReplicas {
		code := core.CodeUnavailable
		if n+full >= spec.MinReplicas { // free space would do
			code = core.CodeNoSpace
		}
		return core.Errorf(code, "queue %s wants at least %d replicas, and can get %d now; %s, or lower --min-replicas with `columba update queue`", spec.Path, spec.MinReplicas, n, h.passedOver())
	}
	e.Disks = make([]core.DiskID, len(e.Replicas))
	for i, id := range e.Replicas {
		st, _ := h.stores.Get(id)
		e.Disks[i] = st.Identity.Disk
	}
	return nil
}

// created remembers the last extent of a key.
func (h *Host) created(key ensureKey, id core.ExtentID, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.mu.creations[key]
	if c == nil {
		c = &creation{}
		h.mu.creations[key] = c
	}
	c.extent, c.at = id, now
}

// backOff is how long the next creation has to wait, since the last ones came to nothing: a store that refuses all
// extents must not be offered a new one each second.
func (h *Host) backOff(key ensureKey, now time.Time) time.Duration {
	h.mu.Lock()
	c := h.mu.creations[key]
	h.mu.Unlock()
	if c == nil {
		return 0
	}
	e, known := h.extents.Get(c.extent)
	nothing := known && e.State != core.ExtentOpen && e.L == 0 && e.Floor == 0
	h.mu.Lock()
	defer h.mu.Unlock()
	pause := time.Duration(0)
	if c.failed >= freeFailures {
		pause = min(minBackOff<<min(c.failed-freeFailures, 10), maxBackOff)
	}
	switch {
	case !nothing || now.Sub(c.at) > pause+atOnce:
		c.failed = 0
		return 0
	case now.Sub(c.at) < pause:
		return pause - now.Sub(c.at)
	}
	c.failed++
	return 0
}

// forgetCreations drops those that are too old to matter, and what is known of chains without extents.
func (h *Host) forgetCreations(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, c := range h.mu.creations {
		if now.Sub(c.at) > 2*maxBackOff+atOnce {
			delete(h.mu.creations, key)
		}
	}
	for queue := range h.mu.chains {
		if !h.extents.Has(queue) {
			delete(h.mu.chains, queue)
		}
	}
}

// openExtents is how many extents of a queue an input host should hold open while it is published to: the setting, less
// those that other input hosts have open. Of each horizon of timers it is one.
func (h *Host) openExtents(w wish) int {
	if w.kind == core.KindTimer {
		return 1
	}
	least := h.cfg.MinOpenExtents
	if least == 0 {
		least = 1
		if len(h.stores.All()) > 1 || len(h.hosts.live("inputhost")) > 1 {
			least = 2
		}
	}
	others := make(map[core.HostID]bool)
	for _, e := range h.extents.OpenOf(w.queue) {
		if e.Kind == w.kind && e.Input != w.input && h.hosts.fate(e.Input, e.InputRun, h.deps.now()) == alive {
			others[e.Input] = true
		}
	}
	return max(1, least-len(others))
}
