package controller

import (
	"context"
	"time"

	"github.com/columbamq/columba/controller/retention"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

const (
	// retainAtOnce bounds the extents that one round marks, and those it has removed: the metadata and the stores have other work.
	retainAtOnce = 64
	// markedFor is at least between the mark and the second look.
	markedFor = 10 * time.Second
	// drainedFor is at least between an extent's retirement and its removal: output hosts are told to leave it, and save for up to a minute
	// what is settled late.
	drainedFor = 90 * time.Second
)

// retainer retires what queues keep no longer, in steps. Each is in the seal row: any controller goes on from there.
//
//	sealed ──due──▶ retiring ──still due, all read again──▶ retired ──drained──▶ removed by its stores, its rows gone
//	   ▲────────────────┘ a group needs it, or the clock is not trusted
//
// A group is made, and so must be rewound, the other way round: its row first, then the extents are read; see leaving. So either the
// second look meets the group, or the group meets the mark, and gets nothing of the extent. One goroutine uses it.
type retainer struct {
	h       *Host
	seen    map[core.ExtentID]sighting
	names   map[core.QueueID]map[string]struct{} // of groups: their rows never go, a list that lacks one is not whole
	marks   int                                  // left in this round
	removes int
	trusted func() bool // asked once a round, when it matters
}

// sighting is since when this controller knows an extent to be retiring, or retired.
type sighting struct {
	state core.ExtentState
	at    time.Time
}

// retainLoop looks at all queues now and then until ctx ends.
func (h *Host) retainLoop(ctx context.Context) {
	r := &retainer{h: h, seen: make(map[core.ExtentID]sighting), names: make(map[core.QueueID]map[string]struct{})}
	clocks := newClocks(h)
	defer clocks.close()
	tick := time.NewTicker(h.cfg.RetainEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			r.round(ctx, clocks)
		}
	}
}

// round takes every queue's extents a step on. What cannot be read is left as it is.
func (r *retainer) round(ctx context.Context, clocks *clocks) {
	r.marks, r.removes = retainAtOnce, retainAtOnce
	asked, trusted := false, false
	r.trusted = func() bool {
		if !asked {
			asked, trusted = true, clocks.trusted(ctx)
		}
		return trusted
	}
	for id := range r.seen {
		if _, live := r.h.extents.get(id); !live {
			delete(r.seen, id)
		}
	}
	for queue := range r.names {
		if !r.h.extents.has(queue) {
			delete(r.names, queue)
		}
	}
	for _, queue := range r.h.extents.queues() {
		if ctx.Err() != nil {
			return
		}
		if err := r.queue(ctx, queue); err != nil && ctx.Err() == nil {
			r.h.log.Info("a queue keeps what it has for now", "queue", queue, "err", err)
		}
	}
}

// queue takes the extents of one queue a step on.
func (r *retainer) queue(ctx context.Context, queue core.QueueID) error {
	ctx, cancel := context.WithTimeout(ctx, sealTimeout)
	defer cancel()
	q, _, err := metadata.Read[metadata.QueueRecord](ctx, r.h.deps.Meta, metadata.Queues, metadata.QueueKey(queue), metadata.Serial)
	if err != nil || q.Spec.Status == core.StatusDeleted { // see retireDeleted
		return err
	}
	policy, now := retention.Policy{Consumed: q.Spec.ConsumedRetention, Unconsumed: q.Spec.UnconsumedRetention}, r.h.deps.now()
	var due, marked []extent
	for _, e := range r.h.extents.of(queue) {
		switch {
		case e.state == core.ExtentSealed && e.Kind == core.KindLog && policy.MayGo(e.ended, now):
			due = append(due, e)
		case e.state == core.ExtentRetiring && r.since(e, now) >= markedFor:
			marked = append(marked, e)
		case e.state == core.ExtentRetired && r.since(e, now) >= drainedFor && r.removes > 0:
			r.removes--
			r.h.look(e.ID, func(ctx context.Context) { r.h.removeDrained(ctx, e) })
		}
	}
	if len(due)+len(marked) == 0 {
		return nil
	}
	marks, err := r.readMarks(ctx, marked) // before the groups: what is read of them must be younger than the mark
	if err != nil {
		return err
	}
	progress, err := r.progress(ctx, queue)
	if err != nil {
		return err
	}
	for _, m := range marks {
		if err := r.decide(ctx, m, policy.Judge(progress.of(m.Extent.ID, endedAt(m)), now), progress); err != nil {
			return err
		}
	}
	for _, e := range due {
		if r.marks == 0 {
			return nil
		}
		if policy.Judge(progress.of(e.ID, e.ended), now) == retention.Keep || !r.trusted() {
			continue
		}
		r.marks--
		if err := r.mark(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// since is for how long this controller has known an extent in its state.
func (r *retainer) since(e extent, now time.Time) time.Duration {
	s := r.seen[e.ID]
	if s.state != e.state {
		s = sighting{e.state, now}
		r.seen[e.ID] = s
	}
	return now.Sub(s.at)
}

// readMarks reads the rows of extents that are marked, and leaves out those that are not any more.
func (r *retainer) readMarks(ctx context.Context, marked []extent) (out []metadata.SealRecord, err error) {
	for _, e := range marked {
		row, _, err := metadata.Read[metadata.SealRecord](ctx, r.h.deps.Meta, metadata.Seals, metadata.SealKey(e.ID), metadata.Serial)
		if err != nil {
			return nil, err
		}
		r.h.extents.took(row)
		if row.State == core.ExtentRetiring {
			out = append(out, row)
		}
	}
	return out, nil
}

// mark begins the retirement of an extent, unless something is the matter with it.
func (r *retainer) mark(ctx context.Context, e extent) error {
	now := r.h.deps.now()
	row, err := metadata.Change(ctx, r.h.deps.Meta, metadata.Seals, metadata.SealKey(e.ID), func(row *metadata.SealRecord) error {
		disputed := row.Floor > row.L && !row.Forced // its writer has not given up what lies above its end
		if row.State != core.ExtentSealed || disputed || row.Home != "" && row.Home != "own" {
			return metadata.ErrNoChange
		}
		row.State, row.Version, row.Attempt, row.Changed = core.ExtentRetiring, row.Version+1, core.NewID(now), now
		return nil
	})
	if err != nil {
		return core.Errorf(core.CodeOf(err), "mark extent %s: %w", e.ID, err)
	}
	r.h.extents.took(row)
	return nil
}

// decide retires a marked extent, or undoes the mark. What goes unconsumed is recorded first: what cannot be recorded is not done.
func (r *retainer) decide(ctx context.Context, m metadata.SealRecord, verdict retention.Verdict, p progress) error {
	id, to := m.Extent.ID, core.ExtentRetired
	if verdict == retention.Keep || !r.trusted() {
		to = core.ExtentSealed
	}
	var lost uint64
	if to == core.ExtentRetired && verdict == retention.Expired {
		var err error
		if lost, err = r.h.unconsumed(ctx, m, p); err == nil {
			err = r.h.recordExpiry(ctx, m, lost)
		}
		if err != nil {
			return core.Errorf(core.CodeOf(err), "retire extent %s: %w", id, err)
		}
	}
	row, err := metadata.Change(ctx, r.h.deps.Meta, metadata.Seals, metadata.SealKey(id), func(row *metadata.SealRecord) error {
		if row.State != core.ExtentRetiring || row.Attempt != m.Attempt {
			return errMoved // another controller went on
		}
		row.State, row.Version, row.Changed = to, row.Version+1, r.h.deps.now()
		return nil
	})
	r.h.extents.took(row)
	if err != nil {
		return core.Errorf(core.CodeOf(err), "retire extent %s: %w", id, err)
	}
	if to == core.ExtentSealed {
		r.h.log.Info("an extent stays: a group needs it, or the clocks differ", "extent", id)
		return nil
	}
	if verdict == retention.Expired {
		r.h.metrics.expired.Inc()
		r.h.metrics.expiredMessages.Add(float64(lost))
	}
	r.h.log.Info("an extent is retired", "extent", id, "queue", m.Extent.Queue, "unconsumed", lost, "bytes", m.Bytes)
	r.h.shares.touch(m.Extent.Queue)
	return nil
}
