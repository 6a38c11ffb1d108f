package retirement

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/controller/retirement/progress"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// farLists counts the lists of checkpoints, each of which takes some time.
type farLists struct {
	metadata.Store
	takes time.Duration
	lists atomic.Int64
}

func (s *farLists) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	if t == metadata.Checkpoints {
		select {
		case <-ctx.Done():
			return nil, false, core.Errorf(core.CodeDeadline, "%w", ctx.Err())
		case <-time.After(s.takes):
		}
		s.lists.Add(1)
	}
	return s.Store.List(ctx, t, partition, after, limit, c)
}

// underWay is how many shares are at most under way when a step ends; the next one does them again.
const underWay = 8

// TestForget_DeletedGroupsCostNothing: groups of any number were made in a queue and deleted. Once their rows are
// forgotten, the removal of an extent does not look for them.
func TestForget_DeletedGroupsCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuin(t, core.StatusDeleted)
		const n = 1000
		last := r.group
		for i := range n - 1 {
			r.group = core.GroupID{ID: core.NewID(r.deleted)}
			name := fmt.Sprintf("pod-%d", i)
			record := metadata.GroupRecord{ID: r.group, Queue: r.queue, Spec: core.GroupSpec{Name: name, Status: core.StatusDeleted}}
			r.ok(metadata.Create(t.Context(), r.meta, metadata.Groups, metadata.GroupKey(r.queue, name), record))
			hint := metadata.DeletedGroupRecord{Group: r.group, Queue: r.queue, Name: name, At: r.deleted}
			r.ok(metadata.Write(t.Context(), r.meta, metadata.Work, metadata.DeletedGroupKey(r.group), hint, r.deleted, 0, metadata.One))
		}
		r.group = last
		r.ok(metadata.Create(t.Context(), r.meta, metadata.Groups, metadata.GroupKey(r.queue, "live"), metadata.GroupRecord{
			ID: core.GroupID{ID: core.NewID(r.deleted)}, Queue: r.queue, Spec: core.GroupSpec{Name: "live"}, Started: true,
		}))
		meta := &farLists{Store: r.meta, takes: 20 * time.Millisecond}
		rounds := r.runner(meta, deletedFor)
		seal := metadata.SealRecord{Extent: core.Extent{ID: r.known, Queue: r.queue}, L: 1}
		if err := rounds.forget(t.Context(), seal); err != nil || meta.lists.Load() != n+1 {
			t.Errorf("before: %d lists, %v", meta.lists.Load(), err)
		}
		rounds.cfg.Every = 30 * time.Second
		began := time.Now()
		rounds.deletedGroups(t.Context())
		if left := r.rows(); left > 0 {
			t.Errorf("%d rows are left after %s", left, time.Since(began))
		}
		meta.lists.Store(0)
		if err := rounds.forget(t.Context(), seal); err != nil || meta.lists.Load() != 1 {
			t.Errorf("%d lists, %v; want one, for the group that is live", meta.lists.Load(), err)
		}
		// A group of that name that is made again is a group like any other.
		_, err := metadata.Change(t.Context(), r.meta, metadata.Groups, metadata.GroupKey(r.queue, "g"), func(g *metadata.GroupRecord) error {
			if !g.Forgotten {
				t.Error("the row of the deleted group is not marked")
			}
			*g = metadata.GroupRecord{ID: core.GroupID{ID: core.NewID(r.deleted)}, Queue: r.queue, Spec: core.GroupSpec{Name: "g"}, Started: true}
			return nil
		})
		r.ok(err)
		r.hint(r.deleted) // of the deleted one, whose removal was done but for the hint
		rounds.deletedGroups(t.Context())
		g, _, err := metadata.Read[metadata.GroupRecord](t.Context(), r.meta, metadata.Groups, metadata.GroupKey(r.queue, "g"), metadata.Serial)
		if r.ok(err); g.Forgotten {
			t.Error("a new group of that name is marked")
		}
	})
}

// TestDeletedGroups_ManyExtents: the removal of a group's rows takes longer than a step, and goes on where it stopped.
func TestDeletedGroups_ManyExtents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuin(t, core.StatusDeleted)
		meta := &farLists{Store: r.meta, takes: 100 * time.Millisecond}
		rounds := r.runner(meta, deletedFor)
		const n = 5000
		for range n {
			e := core.Extent{ID: core.ExtentID{ID: core.NewID(r.deleted)}, Queue: r.queue}
			rounds.cfg.Extents.Put(catalog.Extent{ExtentRecord: metadata.ExtentRecord{Extent: e}, State: core.ExtentSealed})
		}
		tries := 0
		for ; r.rows() > 0 && tries < 10; tries++ {
			began := time.Now()
			rounds.deletedGroups(t.Context())
			if took := time.Since(began); took > stepTimeout {
				t.Errorf("a round took %s", took)
			}
		}
		if got, most := meta.lists.Load(), int64(n+len(r.extents)+tries*underWay); r.rows() > 0 || tries < 2 || got > most {
			t.Errorf("after %d rounds and %d lists %d rows are left, want none after more than one round and at most %d lists", tries, got, r.rows(), most)
		}
		if len(rounds.mu.places) > 0 {
			t.Error("a place is kept of what is done")
		}
	})
}

// TestForget_ManyDeletedGroups: the rows of many deleted groups are not forgotten yet, and the removal of an extent
// takes longer than a step. It goes on where it stopped.
func TestForget_ManyDeletedGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meta := &farLists{Store: memory.New(), takes: 100 * time.Millisecond}
		defer meta.Close()
		queue, now := core.QueueID{ID: core.NewID(time.Now())}, time.Now()
		const n = 3000
		for i := range n {
			g := metadata.GroupRecord{ID: core.GroupID{ID: core.NewID(now)}, Queue: queue, Spec: core.GroupSpec{Name: fmt.Sprint(i), Status: core.StatusDeleted}}
			if err := metadata.Create(t.Context(), meta, metadata.Groups, metadata.GroupKey(queue, g.Spec.Name), g); err != nil {
				t.Fatal(err)
			}
		}
		e := core.Extent{ID: core.ExtentID{ID: core.NewID(now)}, Queue: queue}
		if err := metadata.Create(t.Context(), meta, metadata.Seals, metadata.SealKey(e.ID), metadata.SealRecord{Extent: e, State: core.ExtentRetired}); err != nil {
			t.Fatal(err)
		}
		r := New(Config{Responsible: all, Meta: meta, Extents: catalog.NewExtents(), Now: time.Now, Log: slog.New(slog.DiscardHandler)}, &clerk{})
		known := catalog.Extent{ExtentRecord: metadata.ExtentRecord{Extent: e}, State: core.ExtentRetired}
		if err := r.removeDrained(t.Context(), known); err == nil {
			t.Fatal("the first try takes no longer than a step")
		}
		if err := r.removeDrained(t.Context(), known); err != nil || meta.lists.Load() > n+underWay {
			t.Errorf("the second try: %v, %d lists", err, meta.lists.Load())
		}
	})
}

// TestPlaces_Bounded: no more places are kept than the runner has room for.
func TestPlaces_Bounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuin(t, core.StatusDeleted)
		rounds := r.runner(r.meta, deletedFor)
		other := core.ExtentID{ID: core.NewID(r.deleted)}
		for range placesKept + 3 {
			group := core.GroupID{ID: core.NewID(r.deleted)}
			err := rounds.goOn(group.ID, func(p *progress.Place) error {
				if err := progress.ForgetGroup(t.Context(), r.meta, group, []core.ExtentID{other}, p, r.deleted); err != nil {
					return err
				}
				return errCrashed
			})
			if err == nil {
				t.Fatal("no error")
			}
		}
		if n := len(rounds.mu.places); n != placesKept {
			t.Errorf("%d places are kept, want %d", n, placesKept)
		}
	})
}
