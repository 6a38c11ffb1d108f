// Package operations runs merges and purges of dead letters, and purges of queues, from their records: any controller
// goes on where another one stopped.
package operations

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// Owner is the controller, as far as operations need it.
type Owner interface {
	// Seal fixes the end of an extent and answers its row; one that has its end is answered at once.
	Seal(ctx context.Context, e core.Extent, reason string) (metadata.SealRecord, error)
	// Rehomed takes in a row whose home was changed.
	Rehomed(row metadata.SealRecord)
	// Heard waits until the output hosts that are there have confirmed their lists of these queues, with what was changed
	// of these extents. It answers those that had their time and have not. An error says that it is not known who has.
	Heard(ctx context.Context, changed []core.ExtentID, queues ...core.QueueID) (unheard []core.HostID, err error)
	// Unreached are the other controllers that may be beyond a cut of the network.
	Unreached() []core.HostID

	// Stage chooses the stores of a staging extent of the queue; nothing is written.
	Stage(ctx context.Context, queue core.QueueID, operation core.ID) (core.Extent, error)
	// Register writes the rows of a staging extent, unless they are there: nobody reads it. CodeConflict when it was
	// purged.
	Register(ctx context.Context, stage core.Extent, operation core.ID) error
	// Usable reports whether the stores of a staging extent can be expected to take copies.
	Usable(stage core.Extent) bool
	// SealStage is Seal, at its last seq.
	SealStage(ctx context.Context, stage core.Extent, last core.Seq) (metadata.SealRecord, error)
	// Look has an output host compare a part of an extent with a selection, and copy what fits.
	Look(ctx context.Context, l Look) (Found, error)
}

// Look is a part of a sealed extent that is to be compared with a selection: where it begins.
type Look struct {
	Selection core.Selection
	Extent    core.Extent
	Row       metadata.SealRecord // of the extent
	From      core.Seq
	Stage     core.Extent // zero: nothing is copied
	At        At
}

// At is how far a staging extent goes, and how it ends there.
type At struct {
	Last       core.Seq
	Checksum   uint32
	AppendTime int64
}

// Found is what came of a Look.
type Found struct {
	Next    core.Seq // where to go on
	Matched []byte   // an ack window
	Looked  uint64
	At      At
}

// Config of a Runner.
type Config struct {
	Meta        metadata.Store
	Extents     *catalog.Extents
	Owner       Owner
	Responsible func(core.ID) bool // whether this controller runs the operation of an object
	Self        core.HostID
	Now         func() time.Time
	Log         *slog.Logger
	Every       time.Duration // how often operations are looked for: those that others started or ran, and those that had to wait
}

// Runner starts, runs and cancels operations. Any controller starts and cancels one; the controller that is responsible
// for its object runs it. Safe for concurrent use.
//
//	running ── all extents moved ──▶ done
//	   ├────── Cancel ─────────────▶ cancelled   what was moved stays moved
//	   └────── its group is gone ──▶ failed
//
// A selection is looked for first, and of a merge copied into a staging extent that nobody reads; then it is decided,
// by one change of the operation's row. Before, nothing is changed for anybody, and what was copied is purged when it
// comes to nothing; after, it goes on to the end.
//
// Its steps change a home only from own, and only of a sealed extent: whatever other operations, retention or other
// controllers do meanwhile, each extent goes to one place. So a controller that is not responsible any more, and does
// not know it yet, does no harm: responsibility saves work.
type Runner struct {
	Config
	wake chan struct{}
	mu   struct {
		sync.Mutex
		active map[core.QueueID]struct{} // objects whose operation is worked on here
	}
}

// New makes a runner.
func New(c Config) *Runner {
	r := &Runner{Config: c, wake: make(chan struct{}, 1)}
	r.mu.active = make(map[core.QueueID]struct{})
	return r
}

// Wake has a look at the operations soon: this controller may be responsible for others than before.
func (r *Runner) Wake() { poke(r.wake) }

// Order is what somebody wants.
type Order struct {
	ID    core.ID // of the new operation
	Kind  metadata.OperationKind
	Queue core.QueueID
	Group string // whose dead letters; empty: a purge of the queue's own messages
	// Object is the queue that it concerns, as it was found by these names. One that was made under them since is left
	// alone.
	Object core.QueueID
	Rate   int // messages per second; 0: no bound
	Who    string

	Selection core.Selection // of the dead letters; zero: all
}

// maxTries bounds how often Start begins again because others change the same row.
const maxTries = 8

// Start records an operation, which then runs. With the id of one that is there it answers that one. CodeConflict while
// another one runs on the same dead letters, or the same queue.
func (r *Runner) Start(ctx context.Context, o Order) (metadata.OperationRecord, error) {
	if o.Kind != metadata.OperationMerge && o.Kind != metadata.OperationPurge {
		return metadata.OperationRecord{}, core.Errorf(core.CodeBadArgument, "operation %.80q is not merge or purge", o.Kind)
	}
	old, err := metadata.FindOperation(ctx, r.Meta, o.ID)
	if core.CodeOf(err) == core.CodeCorrupt { // a damaged row holds up its own object alone, see place
		old, _, err = metadata.Read[metadata.OperationRecord](ctx, r.Meta, metadata.Operations, metadata.EndedOperationKey(o.ID), metadata.Serial)
	}
	if core.CodeOf(err) != core.CodeNotFound {
		return old, err
	}
	fresh, err := r.record(ctx, o)
	if err != nil {
		return metadata.OperationRecord{}, core.Errorf(core.CodeOf(err), "start a %s: %w", o.Kind, err)
	}
	row, err := r.place(ctx, fresh)
	if err == nil {
		poke(r.wake)
	}
	return row, err
}

// record is a new operation that is not stored yet.
func (r *Runner) record(ctx context.Context, o Order) (metadata.OperationRecord, error) {
	now := r.Now().UTC()
	fresh := metadata.OperationRecord{
		ID: o.ID, Kind: o.Kind, Queue: o.Queue, Rate: o.Rate, State: metadata.OperationRunning, Who: o.Who, By: r.Self, Created: now, Changed: now,
	}
	if !o.Selection.IsAll() {
		fresh.Selection = &o.Selection
	}
	if o.Group == "" {
		if fresh.Selection != nil {
			return fresh, core.Errorf(core.CodeBadArgument, "only dead letters can be selected; name their group")
		}
		if o.Kind != metadata.OperationPurge {
			return fresh, core.Errorf(core.CodeBadArgument, "name the group whose dead letters are to be merged")
		}
		q, err := r.queue(ctx, o.Queue)
		if fresh.Object, fresh.Path = q.ID, q.Spec.Path; err == nil {
			err = asFound(fresh, o)
		}
		return fresh, err
	}
	g, _, err := metadata.Read[metadata.GroupRecord](ctx, r.Meta, metadata.Groups, metadata.GroupKey(o.Queue, o.Group), metadata.Serial)
	switch {
	case err != nil:
	case !usable(g):
		err = core.Errorf(core.CodeNotFound, "group %s is not there", o.Group)
	case g.DLQ.IsZero():
		err = core.Errorf(core.CodeUnsupported, "group %s has no dead letter queue", o.Group)
	}
	fresh.Object, fresh.Queue, fresh.Group, fresh.Path, fresh.Name = g.DLQ, g.Queue, g.ID, g.Spec.Queue, g.Spec.Name
	if err == nil {
		err = asFound(fresh, o)
	}
	return fresh, err
}

// asFound refuses an operation whose object is not the one that its caller found: a group, or a queue, was deleted and
// made anew under its name since.
func asFound(fresh metadata.OperationRecord, o Order) error {
	if fresh.Object != o.Object {
		return core.Errorf(core.CodeNotFound, "another one was made under the name since it was looked up: %s", what(fresh))
	}
	return nil
}

// queue is a user's queue that may be purged.
func (r *Runner) queue(ctx context.Context, id core.QueueID) (metadata.QueueRecord, error) {
	q, _, err := metadata.Read[metadata.QueueRecord](ctx, r.Meta, metadata.Queues, metadata.QueueKey(id), metadata.Serial)
	switch {
	case err != nil:
	case q.Spec.Status == core.StatusDeleted:
		err = core.Errorf(core.CodeNotFound, "queue %s was deleted", q.Spec.Path)
	case !q.Owner.IsZero():
		err = core.Errorf(core.CodeUnsupported, "queue %s belongs to a group; purge its dead letters with: columba purge-dlq", q.Spec.Path)
	}
	return q, err
}

// place makes an operation the one of its object, once the last one has ended.
func (r *Runner) place(ctx context.Context, fresh metadata.OperationRecord) (metadata.OperationRecord, error) {
	key := metadata.OperationKey(fresh.Object.ID)
	err := metadata.Create(ctx, r.Meta, metadata.Operations, key, fresh)
	for range maxTries {
		if core.CodeOf(err) != core.CodeExists {
			return fresh, err
		}
		old, _, rerr := metadata.Read[metadata.OperationRecord](ctx, r.Meta, metadata.Operations, key, metadata.Serial)
		if rerr != nil {
			return fresh, rerr
		}
		// The call may come late: its operation was started by another try, has ended, and is kept since before old took
		// its place.
		if old.ID != fresh.ID {
			ended, _, eerr := metadata.Read[metadata.OperationRecord](ctx, r.Meta, metadata.Operations, metadata.EndedOperationKey(fresh.ID), metadata.Quorum)
			if core.CodeOf(eerr) != core.CodeNotFound {
				return ended, eerr
			}
		}
		if old.Ended() && old.ID != fresh.ID {
			if cerr := r.clear(ctx, &old); cerr != nil {
				return fresh, core.Errorf(core.CodeUnavailable, "clear away what operation %s left: %w", old.ID, cerr)
			}
			if kerr := metadata.Create(ctx, r.Meta, metadata.Operations, metadata.EndedOperationKey(old.ID), old); kerr != nil && core.CodeOf(kerr) != core.CodeExists {
				return fresh, kerr
			}
		}
		var now metadata.OperationRecord
		now, err = metadata.Change(ctx, r.Meta, metadata.Operations, key, func(now *metadata.OperationRecord) error {
			switch {
			case now.ID == fresh.ID: // asked again
				return metadata.ErrNoChange
			case !now.Ended():
				return core.Errorf(core.CodeConflict, "a %s of %s is under way; wait for operation %s to end, or cancel it", now.Kind, what(*now), now.ID)
			case now.ID != old.ID: // that one is not kept yet
				return core.Errorf(core.CodeExists, "another operation took its place")
			}
			*now = fresh
			return nil
		})
		if err == nil {
			return now, nil
		}
	}
	return fresh, core.Errorf(core.CodeUnavailable, "operations on %s come and go; try again: %w", what(fresh), err)
}

// Cancel stops an operation where it is; one that has ended, or is a selection that is decided, is answered as it is.
func (r *Runner) Cancel(ctx context.Context, id core.ID) (metadata.OperationRecord, error) {
	old, err := metadata.FindOperation(ctx, r.Meta, id)
	if err != nil || old.Ended() {
		return old, err
	}
	return metadata.Change(ctx, r.Meta, metadata.Operations, metadata.OperationKey(old.Object.ID), func(now *metadata.OperationRecord) error {
		if now.ID != id {
			return core.Errorf(core.CodeConflict, "operation %s has ended meanwhile", id)
		}
		if now.Ended() || now.Decided {
			return metadata.ErrNoChange
		}
		now.State, now.Changed = metadata.OperationCancelled, r.Now().UTC()
		poke(r.wake)
		return nil
	})
}

// what an operation works on, in words.
func what(o metadata.OperationRecord) string {
	if o.Group.IsZero() {
		return "queue " + o.Path
	}
	return "the dead letters of group " + o.Name + " of " + o.Path
}

func usable(g metadata.GroupRecord) bool { return g.Started && g.Spec.Status != core.StatusDeleted }

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
