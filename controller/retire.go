package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/controller/clocks"
	"github.com/columbamq/columba/controller/progress"
	"github.com/columbamq/columba/controller/retention"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// retireEvery is how often deleted queues are looked for.
const retireEvery = 10 * time.Second

// retireDeleted removes the extents of deleted queues: sealed first, then retired in the seal row, which stays as a tombstone, then
// deleted by their stores. An answer of the metadata that is missing or failed deletes nothing.
func (h *Host) retireDeleted(ctx context.Context) {
	for _, queue := range h.extents.queues() {
		q, _, err := metadata.Read[metadata.QueueRecord](ctx, h.deps.Meta, metadata.Queues, metadata.QueueKey(queue), metadata.Serial)
		if err != nil || q.Spec.Status != core.StatusDeleted {
			continue
		}
		for _, e := range h.extents.of(queue) {
			h.look(e.ID, func(ctx context.Context) {
				if err := h.retire(ctx, e); err != nil && ctx.Err() == nil {
					h.log.Info("an extent of a deleted queue stays for now", "extent", e.ID, "queue", q.Spec.Path, "err", err)
				}
			})
		}
	}
}

func (h *Host) retire(ctx context.Context, e extent) error {
	ctx, cancel := context.WithTimeout(ctx, sealTimeout)
	defer cancel()
	if !e.state.HasEnd() {
		_, err := h.seal(ctx, order{extent: e.Extent, reason: "queue deleted"})
		if err != nil && e.state == core.ExtentOpen {
			return err // the next round does without its end: stores that have it may never be back, and nobody needs it
		}
	}
	row, err := metadata.Change(ctx, h.deps.Meta, metadata.Seals, metadata.SealKey(e.ID), func(r *metadata.SealRecord) error {
		if r.State == core.ExtentRetired {
			return metadata.ErrNoChange
		}
		r.State, r.Version, r.Changed = core.ExtentRetired, r.Version+1, h.deps.now()
		return nil
	})
	if err != nil {
		return err
	}
	return h.removeRetired(ctx, e, row)
}

// removeRetired has the stores delete an extent, removes its hints and its create row, and forgets it.
func (h *Host) removeRetired(ctx context.Context, e extent, row metadata.SealRecord) error {
	for _, store := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(e.Replicas, row.Holders)))) {
		if !h.stores.answers(store) {
			continue // its inventory will show what it still has, and the row stays
		}
		if err := h.removeReplica(ctx, row, holder{store: store}); err != nil {
			return core.Errorf(core.CodeOf(err), "remove the replica on %s: %w", store, err)
		}
	}
	now := h.deps.now()
	if err := h.deps.Meta.Remove(ctx, metadata.Extents, metadata.ExtentKey(e.Queue, e.ID), now, metadata.One); err != nil {
		return err
	}
	for _, partition := range []string{metadata.PartitionOpen, metadata.PartitionLive} { // the hint by which all this is found again goes last
		if err := h.deps.Meta.Remove(ctx, metadata.Work, metadata.WorkKey(partition, e.ID), now, metadata.One); err != nil {
			return err
		}
	}
	if e.Kind == core.KindTimer { // one that is being cancelled just now leaves a row, which nobody reads
		if err := progress.ForgetCancelled(ctx, h.deps.Meta, e.ID); err != nil {
			h.log.Info("what was cancelled of a retired extent stays in the metadata", "extent", e.ID, "err", err)
		}
	}
	h.extents.remove(e.ID)
	h.shares.touch(e.reader())
	h.metrics.retired.Inc()
	return nil
}

// removeDrained removes an extent that retention has retired, with what is kept of its groups' progress.
func (h *Host) removeDrained(ctx context.Context, e extent) {
	ctx, cancel := context.WithTimeout(ctx, sealTimeout)
	defer cancel()
	row, _, err := metadata.Read[metadata.SealRecord](ctx, h.deps.Meta, metadata.Seals, metadata.SealKey(e.ID), metadata.Serial)
	if err == nil && row.State != core.ExtentRetired {
		err = core.Errorf(core.CodeConflict, "its row says %s", row.State)
	}
	if err == nil {
		err = progress.Forget(ctx, h.deps.Meta, row, h.deps.now())
	}
	if err == nil {
		err = h.removeRetired(ctx, e, row)
	}
	if err != nil && ctx.Err() == nil {
		h.log.Info("a retired extent stays for now", "extent", e.ID, "err", err)
	}
}

// removeReplica deletes a replica by the version of the row that decided it; the store refuses one that is older than it knows.
func (h *Host) removeReplica(ctx context.Context, row metadata.SealRecord, from holder) error {
	store, err := h.storeAt(from.store)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, h.cfg.CallTimeout)
	defer cancel()
	_, err = store.Remove(ctx, connect.NewRequest(&pb.RemoveRequest{
		Extent: row.Extent.ID.ID[:], Version: row.Version, Expected: expect(from.store, from.disk),
	}))
	if err = convert.FromRPC(err); core.CodeOf(err) == core.CodeNotFound {
		return nil
	}
	return err
}

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
	names   map[core.QueueID]progress.Names
	clocks  *clocks.Clocks
	differ  bool // as of the last look at them
	marks   int  // left in this round
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
	r := &retainer{h: h, seen: make(map[core.ExtentID]sighting), names: make(map[core.QueueID]progress.Names)}
	r.clocks = clocks.New(h.deps.Peers.Dial, h.deps.now)
	defer r.clocks.Close()
	tick := time.NewTicker(h.cfg.RetainEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			r.round(ctx)
		}
	}
}

// round takes every queue's extents a step on. What cannot be read is left as it is.
func (r *retainer) round(ctx context.Context) {
	r.marks, r.removes = retainAtOnce, retainAtOnce
	asked, trusted := false, false
	r.trusted = func() bool {
		if !asked {
			asked, trusted = true, r.trustClock(ctx)
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
		case e.state == core.ExtentSealed && policy.MayGoSealed(retention.Sealed{Home: e.home, Ended: e.kept}, now):
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
	groups, names, err := progress.Read(ctx, r.h.deps.Meta, queue, r.names[queue])
	if err != nil {
		return err
	}
	r.names[queue] = names
	for _, m := range marks {
		readers, err := r.readers(ctx, m.Home, groups)
		if err != nil {
			return err
		}
		if err := r.decide(ctx, m, policy.JudgeSealed(retention.Sealed{Home: m.Home, Ended: m.KeptFrom()}, readers.Consumed(m.Extent.ID), now), readers); err != nil {
			return err
		}
	}
	for _, e := range due {
		if r.marks == 0 {
			return nil
		}
		readers, err := r.readers(ctx, e.home, groups)
		if err != nil {
			return err
		}
		if policy.JudgeSealed(retention.Sealed{Home: e.home, Ended: e.kept}, readers.Consumed(e.ID), now) == retention.Keep || !r.trusted() {
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
		disputed := row.Floor > row.L && !row.Forced                          // its writer has not given up what lies above its end
		if row.State != core.ExtentSealed || disputed || row.Home != e.home { // who reads it now was not asked
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
func (r *retainer) decide(ctx context.Context, m metadata.SealRecord, verdict retention.Verdict, p progress.Progress) error {
	id, to := m.Extent.ID, core.ExtentRetired
	if verdict == retention.Keep || !r.trusted() {
		to = core.ExtentSealed
	}
	var lost uint64
	if to == core.ExtentRetired && verdict == retention.Expired {
		var err error
		if lost, err = p.Unconsumed(ctx, r.h.deps.Meta, m); err == nil {
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
	r.h.shares.touch(extent{ExtentRecord: metadata.ExtentRecord{Extent: m.Extent}, home: m.Home}.reader())
	return nil
}

// recordExpiry writes into the audit what retention takes from groups. Doing it again writes the same row.
func (h *Host) recordExpiry(ctx context.Context, row metadata.SealRecord, lost uint64) error {
	at := row.Attempt.Time()
	r := metadata.AuditRecord{
		Who: "controller " + string(h.deps.Members.Self().ID), What: fmt.Sprintf("retention: delete %d messages unconsumed", lost), Object: row.Extent.ID.String(), When: at, Result: "ok",
	}
	return metadata.Write(ctx, h.deps.Meta, metadata.Audit, metadata.AuditKey(at, row.Attempt), r, h.deps.now(), metadata.AuditTTL, metadata.Quorum)
}

// trustClock compares this host's clock with all others', and reports whether anything may be retired by it.
func (r *retainer) trustClock(ctx context.Context) bool {
	self := r.h.deps.Members.Self().ID
	others := slices.DeleteFunc(slices.Clone(r.h.deps.Members.Hosts("")), func(m membership.Host) bool { return m.ID == self || m.Address == "" })
	gaps, silent := r.clocks.Gaps(ctx, others)
	ok := retention.Trust(append(gaps, 0), silent) // its own agrees
	if !ok && !r.differ && ctx.Err() == nil {
		r.h.log.Error("retention stops: the clocks of hosts differ, or too few hosts answer; look after the time service", "gaps", gaps, "silent", silent)
	} else if ok && r.differ {
		r.h.log.Info("retention goes on: the clocks agree")
	}
	r.differ = !ok
	r.h.metrics.retentionStopped.Set(float64(boolInt(!ok)))
	return ok
}

// readers is how far those are that read an extent: own are the groups of its queue.
func (r *retainer) readers(ctx context.Context, home core.Home, own progress.Progress) (progress.Progress, error) {
	if home.Kind != core.HomeMerged {
		return own, nil
	}
	groups, names, err := progress.Read(ctx, r.h.deps.Meta, home.Queue, r.names[home.Queue])
	if err != nil {
		return nil, err
	}
	r.names[home.Queue] = names
	return groups.Only(home.Group), nil
}
