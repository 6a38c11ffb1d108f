package operations

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/faulty"
	"github.com/columbamq/columba/metadata/memory"
)

func id(b byte) core.ID { return core.ID{0: 1, 15: b} }

// harness is metadata with a group, its dead letters, and a controller that seals them.
type harness struct {
	t      *testing.T
	meta   metadata.Store
	group  metadata.GroupRecord
	mu     sync.Mutex
	fails  int // so many seals from now on
	moved  int
	deaf   []core.HostID               // output hosts that Heard names …
	beyond []core.HostID               // controllers that are not reached
	lost   int                         // … and so many times from now on it is not known who has heard
	first  map[core.ExtentID]core.Home // of extents that have no row yet, which end after seven messages

	copies  map[core.ExtentID][]copyOf // in staging extents
	broken  map[core.ExtentID]bool     // of those
	losing  int                        // so many ends of staging extents from now on that one's last message is lost; 0: none is
	unlucky int                        // so many looks from now on the staging extent breaks; 0: none does
	away    bool                       // every one is broken
	stages  int                        // that were made
}

func newHarness(t *testing.T, ends ...core.Seq) *harness {
	t.Helper()
	b := &harness{t: t, meta: memory.New(), copies: make(map[core.ExtentID][]copyOf), broken: make(map[core.ExtentID]bool)}
	b.group = metadata.GroupRecord{
		ID: core.GroupID{ID: id(1)}, Queue: core.QueueID{ID: id(2)}, DLQ: core.QueueID{ID: id(3)}, Started: true,
		Spec: core.GroupSpec{Queue: "/t/q", Name: "g"}.WithDefaults(),
	}
	b.ok(metadata.Create(t.Context(), b.meta, metadata.Groups, metadata.GroupKey(b.group.Queue, "g"), b.group))
	for i, l := range ends {
		e := core.Extent{ID: core.ExtentID{ID: id(byte(10 + i))}, Queue: b.group.DLQ}
		b.ok(metadata.Write(t.Context(), b.meta, metadata.Extents, metadata.ExtentKey(e.Queue, e.ID), metadata.ExtentRecord{Extent: e}, time.Now(), 0, metadata.One))
		b.ok(metadata.Create(t.Context(), b.meta, metadata.Seals, metadata.SealKey(e.ID), metadata.SealRecord{Extent: e, State: core.ExtentSealing, L: l}))
	}
	return b
}

func (b *harness) ok(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// Seal implements Owner.
func (b *harness) Seal(ctx context.Context, e core.Extent, _ string) (metadata.SealRecord, error) {
	b.mu.Lock()
	fails := b.fails > 0
	b.fails -= min(b.fails, 1)
	b.mu.Unlock()
	if fails {
		return metadata.SealRecord{}, core.Errorf(core.CodeUnavailable, "no store answers")
	}
	if home, fresh := b.first[e.ID]; fresh {
		if err := metadata.Create(ctx, b.meta, metadata.Seals, metadata.SealKey(e.ID), metadata.SealRecord{Extent: e, State: core.ExtentSealing, L: 7, Home: home}); err != nil && core.CodeOf(err) != core.CodeExists {
			return metadata.SealRecord{}, err
		}
	}
	return metadata.Change(ctx, b.meta, metadata.Seals, metadata.SealKey(e.ID), func(r *metadata.SealRecord) error {
		if r.State.HasEnd() {
			return metadata.ErrNoChange
		}
		r.State = core.ExtentSealed
		return nil
	})
}

// Rehomed implements Owner.
func (b *harness) Rehomed(metadata.SealRecord) {
	b.mu.Lock()
	b.moved++
	b.mu.Unlock()
}

// Heard implements Owner.
func (b *harness) Heard(context.Context, []core.ExtentID, ...core.QueueID) ([]core.HostID, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lost > 0 {
		b.lost--
		return nil, core.Errorf(core.CodeUnavailable, "no controller is responsible for the queue")
	}
	return b.deaf, nil
}

// Unreached implements Owner.
func (b *harness) Unreached() []core.HostID {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.beyond
}

func (b *harness) runner(meta metadata.Store) *Runner {
	return New(Config{Meta: meta, Extents: catalog.NewExtents(), Owner: b, Responsible: func(core.ID) bool { return true }, Self: "c", Now: time.Now, Every: 2 * time.Second, Log: slog.New(slog.NewTextHandler(b.t.Output(), nil))})
}

// run has a controller work until it is stopped.
func (b *harness) run(r *Runner) (stop func()) {
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

func (b *harness) order(n byte, kind metadata.OperationKind) Order {
	return Order{ID: id(n), Kind: kind, Queue: b.group.Queue, Group: "g", Object: b.group.DLQ, Who: "me"}
}

func (b *harness) wait(n byte) metadata.OperationRecord {
	b.t.Helper()
	for range 1000 {
		o, err := metadata.FindOperation(b.t.Context(), b.meta, id(n))
		b.ok(err)
		if o.Ended() {
			return o
		}
		time.Sleep(100 * time.Millisecond)
	}
	b.t.Fatal("it does not end")
	return metadata.OperationRecord{}
}

// homes counts the messages by the home of their extents.
func (b *harness) homes() map[string]core.Seq {
	out := make(map[string]core.Seq)
	for r, err := range metadata.All[metadata.SealRecord](b.t.Context(), b.meta, metadata.Seals, metadata.PartitionID, metadata.Serial) {
		b.ok(err)
		out[r.Value.Home.String()] += r.Value.L
	}
	return out
}

func TestOperation_Merge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, 5, 0, 7)
		defer b.meta.Close()
		b.fails = 3
		r := b.runner(b.meta)
		defer b.run(r)()
		_, err := r.Start(t.Context(), b.order(50, metadata.OperationMerge))
		b.ok(err)
		if _, err := r.Start(t.Context(), b.order(51, metadata.OperationPurge)); core.CodeOf(err) != core.CodeConflict {
			t.Errorf("a second one: %v, want a conflict", err)
		}
		if o, err := r.Start(t.Context(), b.order(50, metadata.OperationMerge)); err != nil || o.ID != id(50) {
			t.Errorf("asked again: %v, %v", o.ID, err)
		}
		time.Sleep(time.Second)
		if o, err := metadata.FindOperation(t.Context(), b.meta, id(50)); err != nil || o.Error == "" {
			t.Errorf("it does not say what it waits for: %+v, %v", o, err)
		}
		if o := b.wait(50); o.State != metadata.OperationDone || o.Done != 12 || o.Total != 12 || o.Error != "" {
			t.Errorf("it is %+v", o)
		}
		if got := b.homes(); got[core.MergedInto(b.group.Queue, b.group.ID).String()] != 12 {
			t.Errorf("messages by home: %v", got)
		}
		_, err = r.Start(t.Context(), b.order(51, metadata.OperationPurge))
		b.ok(err)
		if o := b.wait(51); o.State != metadata.OperationDone || o.Total != 0 {
			t.Errorf("nothing is left for the second: %+v", o)
		}
		if o := b.wait(50); o.State != metadata.OperationDone || o.Done != 12 {
			t.Errorf("the first, later: %+v", o)
		}
		all, err := metadata.ListOperations(t.Context(), b.meta, true)
		b.ok(err)
		if len(all) != 2 || all[0].ID != id(51) {
			t.Errorf("all are %+v", all)
		}
	})
}

func TestOperation_GroupIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, 5)
		defer b.meta.Close()
		b.fails = 1 << 30
		r := b.runner(b.meta)
		defer b.run(r)()
		_, err := r.Start(t.Context(), b.order(50, metadata.OperationMerge))
		b.ok(err)
		time.Sleep(3 * time.Second)
		_, err = metadata.Change(t.Context(), b.meta, metadata.Groups, metadata.GroupKey(b.group.Queue, "g"), func(g *metadata.GroupRecord) error {
			g.Spec.Status = core.StatusDeleted
			return nil
		})
		b.ok(err)
		if o := b.wait(50); o.State != metadata.OperationFailed || o.Error == "" {
			t.Errorf("it is %+v", o)
		}
		if _, err := r.Start(t.Context(), b.order(51, metadata.OperationMerge)); core.CodeOf(err) != core.CodeNotFound {
			t.Errorf("a further one: %v", err)
		}
	})
}

func TestOperation_RateAndCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, 10, 10, 10, 10, 10)
		defer b.meta.Close()
		r := b.runner(b.meta)
		stop := b.run(r)
		o := b.order(50, metadata.OperationMerge)
		o.Rate = 5 // an extent every two seconds
		_, err := r.Start(t.Context(), o)
		b.ok(err)
		time.Sleep(5 * time.Second)
		rec, err := r.Cancel(t.Context(), id(50))
		b.ok(err)
		if rec.State != metadata.OperationCancelled || rec.Done != 30 || rec.Total != 50 {
			t.Errorf("after 5 s at 5 per second: %+v", rec)
		}
		time.Sleep(time.Minute)
		stop()
		if got := b.homes()["own"]; got != 20 {
			t.Errorf("%d are left, want 20", got)
		}
		if rec, err := r.Cancel(t.Context(), id(50)); err != nil || rec.State != metadata.OperationCancelled {
			t.Errorf("cancelled again: %+v, %v", rec, err)
		}
		r.Now = func() time.Time { return time.Now().Add(keptFor - time.Hour) }
		b.ok(r.sweep(t.Context()))
		if _, err := metadata.FindOperation(t.Context(), b.meta, id(50)); err != nil {
			t.Errorf("within the days it is kept: %v", err)
		}
		r.Now = func() time.Time { return time.Now().Add(keptFor + time.Minute) }
		b.ok(r.sweep(t.Context()))
		if _, err := metadata.FindOperation(t.Context(), b.meta, id(50)); core.CodeOf(err) != core.CodeNotFound {
			t.Errorf("long after: %v", err)
		}
	})
}

// TestOperation_Controllers has several controllers, that come and go and lose answers of the metadata, run a merge or
// a purge: every message ends in one place, and is counted once.
func TestOperation_Controllers(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			total := core.Seq(0)
			ends := make([]core.Seq, 1+random.IntN(12))
			for i := range ends {
				ends[i] = core.Seq(random.IntN(20))
				total += ends[i]
			}
			b := newHarness(t, ends...)
			shaky := faulty.New(b.meta, faulty.Faults{Seed: seed, Before: 0.1, Lost: 0.1, Stale: 0.3, Delay: 50 * time.Millisecond})
			defer shaky.Close()
			o := b.order(50, []metadata.OperationKind{metadata.OperationMerge, metadata.OperationPurge}[random.IntN(2)])
			o.Rate = 20 * random.IntN(2)
			_, err := b.runner(b.meta).Start(t.Context(), o)
			b.ok(err)
			for range random.IntN(8) {
				one, other := b.run(b.runner(shaky)), b.run(b.runner(shaky))
				time.Sleep(time.Duration(random.IntN(4000)) * time.Millisecond)
				one()
				other()
			}
			stop := b.run(b.runner(b.meta))
			got := b.wait(50)
			stop()
			if got.State != metadata.OperationDone || got.Done != uint64(total) || got.Total != uint64(total) {
				t.Fatalf("seed %d: it is %+v, want all of %d", seed, got, total)
			}
			if homes, want := b.homes(), home(got).String(); homes[want] != total {
				t.Fatalf("seed %d: messages by home: %v, want %d in %s", seed, homes, total, want)
			}
		})
	}
}

// TestOperation_CancelledWhileItMoves: what had moved when the cancellation was heard of is counted.
func TestOperation_CancelledWhileItMoves(t *testing.T) {
	b := newHarness(t, 5, 5)
	defer b.meta.Close()
	r := b.runner(b.meta)
	o, err := r.Start(t.Context(), b.order(50, metadata.OperationMerge))
	b.ok(err)
	_, err = r.Cancel(t.Context(), o.ID)
	b.ok(err)
	o.Moved, o.Done = 1, 5
	b.ok(r.save(t.Context(), &o))
	if row, err := metadata.FindOperation(t.Context(), b.meta, o.ID); err != nil || row.State != metadata.OperationCancelled || row.Moved != 1 || row.Done != 5 {
		t.Errorf("it is %+v, %v", row, err)
	}
}
