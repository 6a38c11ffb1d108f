package controller

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/controller/retirement/progress"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/metadata"
)

// startGroup fixes where a new group begins in each present extent; later extents start at 1. The seqs before the start
// are recorded as done, in a checkpoint of the zero run:
//
//	row: one call more, which has an epoch of its own ──▶ marks of retention read, see known ──▶ positions written, of that epoch ──▶ row: started in that epoch
//
// Of several calls at once the first that comes to its end starts the group; the positions of the others are of epochs
// that nobody uses. A group that is started stays as it is: moving its start would skip messages. Another group that
// was made under the name meanwhile is not started: it may have no dead letter queue yet. CodeNotFound then.
func (h *Host) startGroup(ctx context.Context, queue core.QueueID, name string, id core.GroupID) error {
	err := h.start(ctx, metadata.GroupKey(queue, name), queue, id)
	if err != nil {
		return core.Errorf(core.CodeOf(err), "start group %s: %w", name, err)
	}
	h.tellOfGroup(queue)
	return nil
}

func (h *Host) start(ctx context.Context, key metadata.Key, queue core.QueueID, id core.GroupID) error {
	var epoch uint64
	g, err := metadata.Change(ctx, h.deps.Meta, metadata.Groups, key, func(r *metadata.GroupRecord) error {
		switch {
		case r.ID != id || r.Spec.Status == core.StatusDeleted:
			return core.Errorf(core.CodeNotFound, "the group was deleted")
		case r.Started:
			return metadata.ErrNoChange
		}
		epoch = uint64(r.Starts)
		r.Starts, r.Tried = r.Starts+1, epoch
		return nil
	})
	if err != nil || g.Started {
		return err
	}
	g.Epoch = epoch
	if epoch > 0 { // an earlier call did not come to its end: publishers may have gone on since the group was made
		g.Spec.Start = g.Spec.Start.AsOf(g.Created)
	}
	unreached := h.unreached()
	extents, err := h.known(ctx, queue)
	if err != nil {
		return err
	}
	if err := inEach(ctx, extents, func(ctx context.Context, e catalog.Extent) error { return h.startIn(ctx, g, e) }); err != nil {
		return err
	}
	if unreached = h.unreached(unreached...); g.Spec.Start.Mode == core.StartEarliest { // it gets all there is, wherever that was published
		unreached = nil
	}
	_, err = metadata.Change(ctx, h.deps.Meta, metadata.Groups, key, func(r *metadata.GroupRecord) error {
		switch {
		case r.ID != id || r.Spec.Status == core.StatusDeleted:
			return core.Errorf(core.CodeNotFound, "the group was deleted meanwhile")
		case r.Started:
			return metadata.ErrNoChange
		}
		r.Started, r.Epoch, r.First = true, epoch, epoch
		if len(unreached) > 0 {
			r.Unreached = &unreached
		}
		return nil
	})
	return err
}

// inEach does something in each extent, of several at a time; the first error ends it.
func inEach(ctx context.Context, extents []catalog.Extent, do func(ctx context.Context, e catalog.Extent) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(startsAtOnce)
	for _, e := range extents {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			if err := do(ctx, e); err != nil {
				return core.Errorf(core.CodeOf(err), "extent %s: %w", e.ID, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// startIn fixes where the group begins in an extent.
func (h *Host) startIn(ctx context.Context, g metadata.GroupRecord, e catalog.Extent) error {
	switch {
	case e.Leaving():
		return h.writeStart(ctx, g, e, e.L)
	case g.Spec.Start.Mode == core.StartEarliest:
		return nil
	}
	before, err := h.before(ctx, g, e)
	if err != nil {
		return err
	}
	return h.writeStart(ctx, g, e, before)
}

// before is the last seq that the group does not get.
func (h *Host) before(ctx context.Context, g metadata.GroupRecord, e catalog.Extent) (core.Seq, error) {
	start := g.Spec.Start
	if start.Mode == core.StartLatest && e.State.HasEnd() && (start.At.IsZero() || e.EndedBefore(start.At)) {
		return e.L, nil
	}
	ask := slices.Clone(e.Replicas)
	if e.State.HasEnd() && !e.Spent { // its holders know
		ask = nil
	}
	for _, x := range e.Holders {
		if !slices.Contains(ask, x.Store) {
			ask = append(ask, x.Store)
		}
	}
	var before core.Seq
	answered, without := false, 0 // without: stores that do not have it
	var failed error
	for _, id := range ask {
		seq, last, err := h.beforeAt(ctx, id, g, e)
		if err != nil {
			failed = err
			if core.CodeOf(err) == core.CodeNotFound {
				without++
			}
			continue
		}
		before, answered = max(before, seq), true
		short := e.State.HasEnd() && last < e.HeldTo // a holder that lost records, which no inventory has shown yet
		fenced := last == 0                          // it may have got the extent by a fence only, after it lost its disk
		if !short && !fenced && !e.Spent {           // else each may have less than another of what is left
			break
		}
	}
	neverOpened := !e.State.HasEnd() && without == len(ask)
	empty := e.State.HasEnd() && e.L == 0 || e.Spent && without > 0
	if answered || failed == nil || neverOpened || empty {
		return before, nil
	}
	return 0, core.Errorf(core.CodeUnavailable, "no store says where the group begins in extent %s: %w", e.ID, failed)
}

// beforeAt is before as one store says, which has the extent up to last. CodeNotFound: it does not have the extent, or
// lost it with its disk.
func (h *Host) beforeAt(ctx context.Context, id core.HostID, g metadata.GroupRecord, e catalog.Extent) (before, last core.Seq, err error) {
	store, err := h.storeAt(id)
	if err != nil {
		return 0, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, h.cfg.CallTimeout)
	defer cancel()
	return askBefore(ctx, store, g, e)
}

func askBefore(ctx context.Context, store columbav1connect.StoreServiceClient, g metadata.GroupRecord, e catalog.Extent) (before, last core.Seq, err error) {
	if at := g.Spec.Start.At; !at.IsZero() {
		resp, err := store.Seek(ctx, connect.NewRequest(&pb.SeekRequest{Extent: e.ID.ID[:], Time: timestamppb.New(at)}))
		if err != nil {
			return 0, 0, convert.FromRPC(err)
		}
		return core.Seq(max(resp.Msg.Seq, 1)) - 1, core.Seq(resp.Msg.Last), nil
	}
	resp, err := store.GetReplica(ctx, connect.NewRequest(&pb.GetReplicaRequest{Extent: e.ID.ID[:]}))
	if err != nil {
		return 0, 0, convert.FromRPC(err)
	}
	// Not the committed seq: it reaches stores after publishers have their acknowledgements, and the group must not get
	// messages that were acknowledged before it was created. A message that is durable here and not acknowledged yet is
	// published at the same time as the group is created: both answers are right.
	return core.Seq(max(resp.Msg.Last, resp.Msg.Committed)), core.Seq(resp.Msg.Last), nil
}

// writeStart records that everything up to before is not for the group in the epoch of g, begun or not.
func (h *Host) writeStart(ctx context.Context, g metadata.GroupRecord, e catalog.Extent, before core.Seq) error {
	if before == 0 {
		return nil
	}
	now := h.deps.now()
	if e.State.HasEnd() && before >= e.L {
		return metadata.Write(ctx, h.deps.Meta, metadata.Dones, metadata.DoneKey(g.ID, e.ID, g.Epoch), metadata.DoneRecord{L: e.L, Epoch: g.Epoch}, now, 0, metadata.Quorum)
	}
	key := metadata.CheckpointKey(g.ID, e.ID, g.Epoch, core.RunID{})
	state := dispatch.StartAfter(before)
	return h.deps.Meta.Put(ctx, metadata.Checkpoints, key, state.Append(nil), now, 0, metadata.Quorum)
}

// rewindGroup begins a new epoch of a group at a point in each extent that it reads:
//
//	row: a rewind is under way ──▶ marks of retention read, see known ──▶ positions written, of an epoch that nobody uses ──▶ row: that epoch
//	                                     └─────────────────── failed ──────────────────────────────────────▶ row: as before
//
// Extents that a controller beyond a cut has made are not among those of known: the row names the controllers that were
// not reached.
//
// The positions of an epoch are written by one call only: one that comes after it takes a higher epoch, also when the
// first has failed; if it has not, it fails at its last step. With resumed, the epoch of a rewind that was left, it
// does nothing when that one is not there any more. A resumed rewind to latest leads to what was latest when the first
// attempt began: what was published since is for the group. Another group that was made under the name meanwhile is
// left alone: CodeNotFound.
func (h *Host) rewindGroup(ctx context.Context, queue core.QueueID, name string, id core.GroupID, to core.Start, resumed uint64) (epoch uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, rewindTimeout)
	defer cancel()
	key := metadata.GroupKey(queue, name)
	g, err := metadata.Change(ctx, h.deps.Meta, metadata.Groups, key, func(r *metadata.GroupRecord) error {
		if r.ID != id || !r.Started || r.Spec.Status == core.StatusDeleted {
			return core.Errorf(core.CodeNotFound, "group %s is not there", name)
		}
		last := max(r.Epoch, r.Tried)
		if r.Rewind != nil {
			last = max(last, r.Rewind.Epoch)
		}
		if resumed > 0 && (r.Rewind == nil || r.Rewind.Epoch != resumed) {
			return core.Errorf(core.CodeConflict, "another controller went on with it")
		}
		if resumed > 0 {
			to = r.Rewind.To.AsOf(r.Rewind.Began)
		}
		self := h.deps.Members.Self()
		r.Rewind = &metadata.Rewind{Epoch: last + 1, To: to, Began: h.deps.now().UTC(), By: self.ID, Run: self.Run}
		return nil
	})
	if err != nil {
		return 0, core.Errorf(core.CodeOf(err), "rewind group %s: %w", name, err)
	}
	h.tellOfGroup(queue) // it goes on if this one dies
	unreached := h.unreached()
	if err := h.writePositions(ctx, g); err != nil {
		return 0, core.Errorf(core.CodeOf(h.forgetRewind(ctx, g, err)), "rewind group %s: %w", name, err)
	}
	if unreached = h.unreached(unreached...); g.Rewind.To.Mode == core.StartEarliest {
		unreached = nil
	}
	next, err := metadata.Change(ctx, h.deps.Meta, metadata.Groups, key, func(r *metadata.GroupRecord) error {
		if !sameRewind(*r, g) {
			return core.Errorf(core.CodeConflict, "it was deleted or sent elsewhere meanwhile")
		}
		r.Epoch, r.Rewind, r.LastSeek = g.Rewind.Epoch, nil, &metadata.Seek{To: g.Rewind.To, At: h.deps.now().UTC(), Unreached: unreached}
		return nil
	})
	if err != nil {
		return 0, core.Errorf(core.CodeOf(err), "rewind group %s: %w", name, err)
	}
	h.log.Info("a group was rewound", "queue", g.Spec.Queue, "group", name, "epoch", next.Epoch, "to", to)
	h.tellOfGroup(queue)
	h.look(core.ExtentID{ID: g.ID.ID}, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		// Output hosts that have not heard of the rewind still go by the rows of the epoch that it ended.
		if err := progress.ForgetEpochs(ctx, h.deps.Meta, g.ID, g.Epoch, h.deps.now()); err != nil {
			h.log.Info("done rows of earlier epochs stay until the next rewind of the group, or until their extents are retired", "queue", g.Spec.Queue, "group", name, "err", err)
		}
	})
	return next.Epoch, nil
}

const (
	// rewindTimeout bounds one rewind.
	rewindTimeout = 20 * time.Second
	// startsAtOnce bounds the extents whose positions are asked for and written at a time: each takes a call and a sync.
	startsAtOnce = 32
	// abandonedAfter is how old a rewind is whose controller has died: another one begins it again.
	abandonedAfter = rewindTimeout + 10*time.Second
)

func sameRewind(a, b metadata.GroupRecord) bool {
	return a.ID == b.ID && a.Spec.Status != core.StatusDeleted && a.Rewind != nil && a.Rewind.Epoch == b.Rewind.Epoch
}

// writePositions writes where the epoch to come begins. Merged messages, and those in the retry queue, stay as they
// are: they bypass every start.
func (h *Host) writePositions(ctx context.Context, g metadata.GroupRecord) error {
	next := g
	next.Epoch, next.Spec.Start = g.Rewind.Epoch, g.Rewind.To
	extents, err := h.known(ctx, g.Queue)
	if err != nil {
		return err
	}
	return inEach(ctx, extents, func(ctx context.Context, e catalog.Extent) error {
		if e.Kind == core.KindTimer && !e.Leaving() && g.Rewind.To.Mode == core.StartTime {
			return h.carryTimers(ctx, next, g, e)
		}
		return h.startIn(ctx, next, e)
	})
}

// carryTimers has a group that is sent to a time get what was published since once more, and of what was published
// before, for later, what it has not consumed: that is no past.
func (h *Host) carryTimers(ctx context.Context, next, g metadata.GroupRecord, e catalog.Extent) error {
	before, err := h.before(ctx, next, e)
	if err != nil {
		return err
	}
	return progress.CarryUntil(ctx, h.deps.Meta, g, next.Epoch, e.Extent, e.L, before, h.deps.now())
}

// forgetRewind undoes the first step of a rewind that failed. It answers that failure, or CodeUnknown when the rewind
// may go on.
func (h *Host) forgetRewind(ctx context.Context, g metadata.GroupRecord, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.cfg.CallTimeout)
	defer cancel()
	_, err := metadata.Change(ctx, h.deps.Meta, metadata.Groups, metadata.GroupKey(g.Queue, g.Spec.Name), func(r *metadata.GroupRecord) error {
		if !sameRewind(*r, g) {
			return metadata.ErrNoChange
		}
		r.Tried, r.Rewind = r.Rewind.Epoch, nil // what it wrote is not for the next one
		return nil
	})
	if err != nil {
		return core.Errorf(core.CodeUnknown, "a controller may go on with it: %w", cause)
	}
	return cause
}

// resumeRewind begins a rewind again whose controller has died, and records in the audit how it ended: the entry of
// whoever asked for it stays "asked".
func (h *Host) resumeRewind(g metadata.GroupRecord) {
	now := h.deps.now()
	if now.Sub(g.Rewind.Began) < abandonedAfter && (g.Rewind.Run.IsZero() || h.hosts.fate(g.Rewind.By, g.Rewind.Run, now) != gone) {
		return
	}
	h.look(core.ExtentID{ID: g.ID.ID}, func(ctx context.Context) {
		ended, err := h.audit(ctx, slog.LevelInfo, "controller "+string(h.deps.Members.Self().ID), "resume seek to "+g.Rewind.To.String(), h.queueName(ctx, g.Queue)+"/"+g.Spec.Name)
		if err == nil {
			_, err = h.rewindGroup(ctx, g.Queue, g.Spec.Name, g.ID, g.Rewind.To, g.Rewind.Epoch)
			ended(ctx, err)
		}
		if err != nil && ctx.Err() == nil {
			h.log.Info("a seek that has begun waits", "queue", g.Spec.Queue, "group", g.Spec.Name, "err", err)
		}
	})
}
