package retirement

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/faulty"
	"github.com/columbamq/columba/metadata/memory"
)

// mortal is a store whose user crashes at some change: that one and all after it fail.
type mortal struct {
	metadata.Store
	left atomic.Int64
}

var errCrashed = core.Errorf(core.CodeUnavailable, "crashed")

func (s *mortal) Delete(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version) error {
	if s.left.Add(-1) < 0 {
		return errCrashed
	}
	return s.Store.Delete(ctx, t, k, old)
}

func (s *mortal) Remove(ctx context.Context, t metadata.Table, k metadata.Key, at time.Time, c metadata.Consistency) error {
	if s.left.Add(-1) < 0 {
		return errCrashed
	}
	return s.Store.Remove(ctx, t, k, at, c)
}

// ruin is a deleted group of which every table has rows. One extent is known to the controller alone, the others only
// by rows of the group.
type ruin struct {
	t       *testing.T
	meta    metadata.Store
	queue   core.QueueID
	group   core.GroupID
	known   core.ExtentID
	extents []core.ExtentID
	deleted time.Time
}

func newRuin(t *testing.T, status core.Status) *ruin {
	now := time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC)
	r := &ruin{t: t, meta: memory.New(), queue: core.QueueID{ID: core.NewID(now)}, group: core.GroupID{ID: core.NewID(now)}, deleted: now}
	t.Cleanup(func() { r.meta.Close() })
	record := metadata.GroupRecord{ID: r.group, Queue: r.queue, Spec: core.GroupSpec{Name: "g", Status: status}}
	r.ok(metadata.Create(t.Context(), r.meta, metadata.Groups, metadata.GroupKey(r.queue, "g"), record))
	r.hint(now)
	for i := range 4 {
		e := core.ExtentID{ID: core.NewID(now)}
		r.extents = append(r.extents, e)
		for epoch := range uint64(2) {
			r.put(metadata.Checkpoints, metadata.CheckpointKey(r.group, e, epoch, core.RunID{}))
			r.ok(r.meta.Insert(t.Context(), metadata.Claims, metadata.ClaimKey(r.group, e, epoch), []byte("{}")))
		}
		switch i {
		case 0:
			r.known = e
		case 1:
			r.put(metadata.Dones, metadata.DoneKey(r.group, e, 0))
		case 2:
			r.put(metadata.Assignments, metadata.AssignmentKey(r.group, e, metadata.Precedence{Counter: 1, By: "a"}))
			r.put(metadata.Assignments, metadata.AssignmentKey(r.group, e, metadata.Precedence{Counter: 2, By: "b"}))
		default:
			r.put(metadata.Dones, metadata.DoneKey(r.group, e, 0))
			r.put(metadata.Assignments, metadata.AssignmentKey(r.group, e, metadata.Precedence{Counter: 7, By: "a"}))
		}
	}
	return r
}

func (r *ruin) ok(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// put writes a row by a clock that is ahead.
func (r *ruin) put(t metadata.Table, k metadata.Key) {
	r.t.Helper()
	r.ok(r.meta.Put(r.t.Context(), t, k, []byte("{}"), r.deleted.Add(time.Hour), 0, metadata.One))
}

func (r *ruin) hint(at time.Time) {
	r.t.Helper()
	hint := metadata.DeletedGroupRecord{Group: r.group, Queue: r.queue, Name: "g", At: at}
	r.ok(metadata.Write(r.t.Context(), r.meta, metadata.Work, metadata.DeletedGroupKey(r.group), hint, at, 0, metadata.One))
}

// runner is a controller's, so long after the deletion.
func (r *ruin) runner(meta metadata.Store, after time.Duration) *Runner {
	extents := catalog.NewExtents()
	known := core.Extent{ID: r.known, Queue: r.queue}
	extents.Put(catalog.Extent{ExtentRecord: metadata.ExtentRecord{Extent: known}, State: core.ExtentOpen})
	cfg := Config{Responsible: all, Meta: meta, Extents: extents, Now: func() time.Time { return r.deleted.Add(after) }, Log: slog.New(slog.DiscardHandler)}
	return New(cfg, nil)
}

// rows that are left, the hint too.
func (r *ruin) rows() (n int) {
	r.t.Helper()
	count := func(t metadata.Table, partition string) {
		rows, _, err := r.meta.List(r.t.Context(), t, partition, "", 100, metadata.One)
		r.ok(err)
		n += len(rows)
	}
	count(metadata.Work, metadata.PartitionDeleted)
	count(metadata.Dones, r.group.String())
	count(metadata.Assignments, r.group.String())
	for _, e := range r.extents {
		count(metadata.Checkpoints, metadata.CheckpointPartition(r.group, e))
		count(metadata.Claims, metadata.CheckpointPartition(r.group, e))
	}
	return n
}

// TestDeletedGroups_CrashAnywhere has a controller crash at each of its changes; the next one leaves nothing behind.
func TestDeletedGroups_CrashAnywhere(t *testing.T) {
	for steps := int64(0); ; steps++ {
		r := newRuin(t, core.StatusDeleted)
		all := r.rows()
		meta := &mortal{Store: r.meta}
		meta.left.Store(steps)
		r.runner(meta, deletedFor).deletedGroups(t.Context())
		crashed := meta.left.Load() < 0
		if left := r.rows(); crashed && int64(left) != int64(all)-steps {
			t.Fatalf("after %d changes %d rows of %d are left", steps, left, all)
		}
		r.runner(r.meta, deletedFor).deletedGroups(t.Context())
		if left := r.rows(); left > 0 {
			t.Fatalf("a crash after %d of %d changes leaves %d rows behind", steps, all, left)
		}
		if !crashed {
			return
		}
	}
}

// TestDeletedGroups_TwoControllers have metadata that fail now and then, and crash now and then.
func TestDeletedGroups_TwoControllers(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := newRuin(t, core.StatusDeleted)
			var wg sync.WaitGroup
			for i := range uint64(2) {
				wg.Go(func() {
					for round := range uint64(3) {
						meta := &mortal{Store: faulty.New(r.meta, faulty.Faults{Seed: seed<<8 + i<<4 + round, Before: 0.1})}
						meta.left.Store(int64(3 + 7*round))
						r.runner(meta, deletedFor).deletedGroups(t.Context())
					}
				})
			}
			wg.Wait()
			r.runner(r.meta, deletedFor).deletedGroups(t.Context())
			if left := r.rows(); left > 0 {
				t.Errorf("%d rows are left", left)
			}
		})
	}
}

// TestDeletedGroups_When: not soon after the deletion, not of a group that was not deleted after all, but also when
// another group has the name.
func TestDeletedGroups_When(t *testing.T) {
	r := newRuin(t, core.StatusDeleted)
	all := r.rows()
	r.runner(r.meta, deletedFor-time.Second).deletedGroups(t.Context())
	if left := r.rows(); left != all {
		t.Errorf("%d rows of %d are left soon after the deletion", left, all)
	}
	if _, err := metadata.Change(t.Context(), r.meta, metadata.Groups, metadata.GroupKey(r.queue, "g"), func(g *metadata.GroupRecord) error {
		g.ID, g.Spec.Status = core.GroupID{ID: core.NewID(r.deleted)}, core.StatusEnabled
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	r.runner(r.meta, deletedFor).deletedGroups(t.Context())
	if left := r.rows(); left > 0 {
		t.Errorf("%d rows are left of a group whose name is another one's now", left)
	}

	r = newRuin(t, core.StatusEnabled)
	all = r.rows()
	r.runner(r.meta, deletedFor).deletedGroups(t.Context())
	if left := r.rows(); left != all-1 {
		t.Errorf("of a group that was not deleted %d rows of %d are left, want all but the hint", left, all)
	}
}

// TestDeletedGroups_InPages: one group that cannot be cleared, and more than one page, hold up nobody.
func TestDeletedGroups_InPages(t *testing.T) {
	r := newRuin(t, core.StatusDeleted)
	mine := r.group
	bad := core.GroupID{ID: core.ID{0: 1}}
	r.ok(r.meta.Put(t.Context(), metadata.Work, metadata.DeletedGroupKey(bad), []byte("?"), r.deleted, 0, metadata.One))
	for i := range AtOnce {
		r.group = core.GroupID{ID: core.ID{0: 2, 15: byte(i)}} // before the one with rows
		r.hint(r.deleted)
	}
	r.group = mine
	rounds := r.runner(r.meta, deletedFor)
	rounds.deletedGroups(t.Context())
	rounds.deletedGroups(t.Context())
	if left := r.rows(); left != 1 {
		t.Errorf("%d rows are left, want the hint that cannot be read", left)
	}
}

// TestDeletedGroups_LeaveNoQueues: whoever deleted a group died before it deleted the group's built-in queues, and
// another group took the name. The queues go unless the paths are that group's by now.
func TestDeletedGroups_LeaveNoQueues(t *testing.T) {
	r := newRuin(t, core.StatusDeleted)
	fresh := core.GroupID{ID: core.NewID(r.deleted)}
	if _, err := metadata.Change(t.Context(), r.meta, metadata.Groups, metadata.GroupKey(r.queue, "g"), func(g *metadata.GroupRecord) error {
		g.ID, g.Spec.Queue, g.Spec.Status = fresh, "/t/q", core.StatusEnabled
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	status := func(owner core.GroupID, path string) func() core.Status {
		n := metadata.NameRecord{Queue: core.QueueID{ID: core.NewID(r.deleted)}, Owner: owner, Spec: core.QueueSpec{Path: path, Status: core.StatusEnabled}}
		r.ok(metadata.Create(t.Context(), r.meta, metadata.Names, metadata.NameKey(path), n))
		r.ok(metadata.Create(t.Context(), r.meta, metadata.Queues, metadata.QueueKey(n.Queue), n.Record()))
		return func() core.Status {
			q, _, err := metadata.Read[metadata.QueueRecord](t.Context(), r.meta, metadata.Queues, metadata.QueueKey(n.Queue), metadata.Serial)
			r.ok(err)
			return q.Spec.Status
		}
	}
	retry, dlq := status(r.group, core.RetryPath("/t/q", "g")), status(fresh, core.DLQPath("/t/q", "g"))
	r.runner(r.meta, deletedFor).deletedGroups(t.Context())
	if retry() != core.StatusDeleted || dlq() != core.StatusEnabled {
		t.Errorf("the retry queue of the deleted group is %s, the dead letter queue of the other one %s", retry(), dlq())
	}
}
