package operations

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// gated is a store whose first change of a seal row waits.
type gated struct {
	metadata.Store
	once        *sync.Once
	began, goOn chan struct{}
}

func newGated(store metadata.Store) gated {
	return gated{store, new(sync.Once), make(chan struct{}), make(chan struct{})}
}

func (g gated) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte, ttl time.Duration) error {
	if t == metadata.Seals {
		g.once.Do(func() {
			close(g.began)
			<-g.goOn
		})
	}
	return g.Store.Update(ctx, t, k, old, value, ttl)
}

// TestSelection_CancelledMergeMovesLate: a controller is about to move an extent for a merge of all when that is
// cancelled. It does so between the decision of a selection in the extent and what follows from it. Each message that
// the selection found is merged, or purged, once.
func TestSelection_CancelledMergeMovesLate(t *testing.T) {
	for _, kind := range []metadata.OperationKind{metadata.OperationMerge, metadata.OperationPurge} {
		b := newHarness(t, 5)
		late, other := newGated(b.meta), newGated(b.meta)
		slow, r := b.runner(late), b.runner(other)
		all, err := r.Start(t.Context(), b.order(50, metadata.OperationMerge))
		b.ok(err)
		var moving, taking sync.WaitGroup
		moving.Go(func() { slow.work(t.Context(), all.Object) })
		<-late.began
		_, err = r.Cancel(t.Context(), all.ID)
		b.ok(err)
		some := b.order(51, kind)
		some.Selection = core.Selection{MinAttempts: 3}
		_, err = r.Start(t.Context(), some)
		b.ok(err)
		taking.Go(func() { r.work(t.Context(), all.Object) })
		<-other.began
		close(late.goOn)
		moving.Wait()
		close(other.goOn)
		taking.Wait()
		want := 0
		if kind == metadata.OperationMerge {
			want = 1
		}
		_, merged, _ := b.places()
		for seq := core.Seq(3); seq <= 4; seq++ {
			if got := merged[copyOf{core.ExtentID{ID: id(10)}, seq}]; got != want {
				t.Errorf("a %s of message %d: it was merged %d times, want %d", kind, seq, got, want)
			}
		}
		b.meta.Close()
	}
}

// TestStart_AnotherObject: the group, or the queue, was deleted and made anew under its name before the call came. The
// messages of the new one stay.
func TestStart_AnotherObject(t *testing.T) {
	b := newHarness(t, 5)
	b.ok(metadata.Create(t.Context(), b.meta, metadata.Queues, metadata.QueueKey(b.group.Queue), metadata.QueueRecord{ID: b.group.Queue, Spec: core.QueueSpec{Path: "/t/q", Status: core.StatusEnabled}}))
	merge, purge, all := b.order(50, metadata.OperationMerge), b.order(51, metadata.OperationPurge), b.order(52, metadata.OperationPurge)
	all.Group = ""
	for _, o := range []Order{merge, purge, all} {
		o.Object = core.QueueID{ID: id(99)}
		if row, err := b.runner(b.meta).Start(t.Context(), o); core.CodeOf(err) != core.CodeNotFound {
			t.Errorf("a %s of what was deleted, group %q: %+v, %v; want not_found", o.Kind, o.Group, row, err)
		}
	}
	if left, err := metadata.ListOperations(t.Context(), b.meta, true); err != nil || len(left) > 0 {
		t.Errorf("it left %+v, %v", left, err)
	}
}

// groupGate is a store whose first reading of a group's row waits.
type groupGate struct {
	gated
}

func (g groupGate) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	if t == metadata.Groups {
		g.once.Do(func() {
			close(g.began)
			<-g.goOn
		})
	}
	return g.Store.Get(ctx, t, k, c)
}

// TestStart_AgainAfterAnother: a call that found no operation of its id is held up. Meanwhile the same call was made
// again, its operation ran to the end, and so did another one. The late call answers what came of its operation: to run
// it again would take dead letters that came since.
func TestStart_AgainAfterAnother(t *testing.T) {
	b := newHarness(t, 5)
	late := groupGate{newGated(b.meta)}
	slow, r := b.runner(late), b.runner(b.meta)
	var starting sync.WaitGroup
	starting.Go(func() {
		if o, err := slow.Start(t.Context(), b.order(50, metadata.OperationPurge)); err != nil || o.ID != id(50) || !o.Ended() {
			t.Errorf("the late call answers %+v, %v; want the operation as it ended", o, err)
		}
	})
	<-late.began
	for n := range byte(2) {
		o, err := r.Start(t.Context(), b.order(50+n, metadata.OperationPurge))
		b.ok(err)
		r.work(t.Context(), o.Object)
		b.wait(50 + n)
	}
	close(late.goOn)
	starting.Wait()
	for n := range byte(2) {
		if o, err := metadata.FindOperation(t.Context(), b.meta, id(50+n)); err != nil || o.State != metadata.OperationDone {
			t.Errorf("operation %d is %+v, %v; want it done", n, o, err)
		}
	}
}
