package outputhost

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/metadata"
)

// weak is a store that tells which rows were written at Quorum: others may be lost with the one copy that has them.
// Without a majority writes at Quorum fail.
type weak struct {
	metadata.Store
	noMajority bool
	hangs      bool // without a majority a write at Quorum fails by its deadline only
	strong     map[metadata.Key]metadata.Row
	puts       int // rows written at One
	tries      int // at Quorum, without a majority
}

// weaken has the host write to one.
func (b *harness) weaken() *weak {
	w := &weak{Store: b.meta, strong: make(map[metadata.Key]metadata.Row)}
	b.deps.Meta = w
	return w
}

func (w *weak) Put(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, at time.Time, ttl time.Duration, c metadata.Consistency) error {
	return w.PutAll(ctx, t, []metadata.Row{{Key: k, Value: value, Written: at}}, c)
}

func (w *weak) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, c metadata.Consistency) error {
	switch {
	case c == metadata.One:
		w.puts += len(rows)
	case w.noMajority && w.hangs:
		w.tries++
		<-ctx.Done()
		return core.Errorf(core.CodeUnknown, "no majority: %w", context.Cause(ctx))
	case w.noMajority:
		w.tries++
		return core.Errorf(core.CodeUnavailable, "no majority")
	default:
		for _, r := range rows {
			w.strong[r.Key] = r
		}
	}
	return w.Store.PutAll(ctx, t, rows, c)
}

// saveAll has the host save what has changed.
func (b *harness) saveAll() {
	b.t.Helper()
	for _, g := range b.groupList() {
		b.saver.note(g, saveRound)
	}
	b.saver.save(b.t.Context(), false)
}

// left lists the checkpoints of a share.
func (b *harness) left(s *share) map[metadata.Key]metadata.Row {
	b.t.Helper()
	rows, err := b.checkpoints(b.t.Context(), metadata.CheckpointPartition(s.group.id, s.extent.ID), metadata.Quorum)
	if err != nil {
		b.t.Fatal(err)
	}
	out := make(map[metadata.Key]metadata.Row)
	for _, r := range rows {
		out[r.Key] = r
	}
	return out
}

// TestFinish_CheckpointsStayWithoutAMajority consumes an extent to its end while no majority of the metadata takes
// writes. Its checkpoints are removed after its done row is at Quorum, and meanwhile few rows are written.
func TestFinish_CheckpointsStayWithoutAMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		g, s := b.share(10, 10)
		meta := b.weaken()
		meta.noMajority = true
		g.mu.Lock()
		s.rules.Ack(1, 10, 1, time.Now(), nil)
		s.end, s.l = true, 10
		g.mu.Unlock()
		for range 60 {
			b.saveAll()
			time.Sleep(time.Second)
		}
		done := metadata.DoneKey(g.id, s.extent.ID, 0)
		if n := len(b.left(s)); n != 1 || s.removed {
			t.Errorf("without a majority: %d checkpoints, the share is removed: %t; want the checkpoint, as the done row may be lost", n, s.removed)
		}
		if meta.puts > 61 || meta.tries > 30 || meta.tries < 10 {
			t.Errorf("in a minute %d rows were written at One, and %d tried at Quorum", meta.puts, meta.tries)
		}
		meta.noMajority = false
		for range 5 {
			b.saveAll()
			time.Sleep(time.Second)
		}
		if _, there := meta.strong[done]; !there || len(b.left(s)) > 0 || !s.removed {
			t.Errorf("with a majority: done at Quorum %t, %d checkpoints, removed %t", there, len(b.left(s)), s.removed)
		}
	})
}

// TestMerge_OtherCheckpointStaysUntilOursIsAtQuorum: the checkpoint of an owner that died is removed after that of the
// owner of now cannot be lost.
func TestMerge_OtherCheckpointStaysUntilOursIsAtQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		r, a := b.group()
		extent := core.ExtentID{ID: core.ID(a.Extent.Id)}
		before := metadata.CheckpointKey(r.ID, extent, 0, core.RunID{ID: core.NewID(time.Now())})
		state := dispatch.StartAfter(5)
		if err := b.meta.Put(t.Context(), metadata.Checkpoints, before, state.Append(nil), time.Now(), 0, metadata.One); err != nil {
			t.Fatal(err)
		}
		if err := b.give(1, a); err != nil {
			t.Fatal(err)
		}
		g := b.mu.groups[r.ID]
		s := g.mu.shares[extent]
		own := metadata.CheckpointKey(r.ID, extent, 0, b.deps.Members.Self().Run)
		meta := b.weaken()
		meta.noMajority = true
		rounds := func(n int) {
			for range n {
				time.Sleep(mergeEvery)
				if err := g.mergeOthers(t.Context()); err != nil {
					t.Fatal(err)
				}
				b.saveAll()
			}
		}
		s.rules.AckProven(6, time.Now())
		rounds(30)
		if _, there := b.left(s)[before]; !there {
			t.Error("without a majority the other checkpoint is gone: if ours is lost, the group gets all again")
		}
		if meta.puts > 61 || meta.tries > 30 {
			t.Errorf("in a minute %d rows were written at One, and %d tried at Quorum", meta.puts, meta.tries)
		}
		meta.noMajority = false
		rounds(5)
		left := b.left(s)
		if _, there := left[before]; there || len(left) != 1 {
			t.Errorf("with a majority %d checkpoints are left", len(left))
		}
		strong, err := dispatch.DecodeState(meta.strong[own].Value)
		if err != nil || strong.Frontier() != 6 {
			t.Errorf("ours is at Quorum with frontier %d, %v; want 6", strong.Frontier(), err)
		}
		clear(meta.strong)
		meta.puts = 0
		s.rules.AckProven(7, time.Now())
		rounds(5)
		if len(meta.strong) > 0 || meta.puts != 1 {
			t.Errorf("later checkpoints: %d at Quorum, %d at One; want one at One", len(meta.strong), meta.puts)
		}
	})
}

// TestMerge_MoreIsMergedMeanwhile: progress that is merged while a checkpoint is on its way to Quorum is not in it.
func TestMerge_MoreIsMergedMeanwhile(t *testing.T) {
	b := newHarness(t)
	g, s := b.share(10, 6)
	s.others, s.secured = make(map[metadata.Key]*other), securedAsked
	g.mu.Lock()
	s.saveLocked(saveRound)
	g.mu.Unlock()
	b.saver.note(g, saveRound)
	settles := b.saver.put(t.Context(), b.saver.draft(b.saver.all(false), &pass{all: true, now: b.deps.Now()}))
	if len(settles) != 1 || s.secured != securedPending {
		t.Fatalf("%d groups have rows to write, the share is at %d", len(settles), s.secured)
	}
	state := dispatch.StartAfter(5)
	key := metadata.CheckpointKey(g.id, s.extent.ID, 0, core.RunID{ID: core.NewID(time.Now())})
	if err := b.meta.Put(t.Context(), metadata.Checkpoints, key, state.Append(nil), time.Now(), 0, metadata.One); err != nil {
		t.Fatal(err)
	}
	if err := g.mergeInto(t.Context(), s, time.Now()); err != nil {
		t.Fatal(err)
	}
	settles[0](t.Context())
	if s.secured != securedNot {
		t.Errorf("the share is at %d, as if its checkpoint had all", s.secured)
	}
}

// TestHandover_GivenSharesAreSavedAtQuorum: the owner that follows reads at Quorum, and must not miss what this host
// saved last.
func TestHandover_GivenSharesAreSavedAtQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct{ noMajority, hangs bool }{{false, false}, {true, false}, {true, true}} {
			b := newHarness(t)
			g, s := b.share(10, 6)
			meta := b.weaken()
			meta.noMajority, meta.hangs = c.noMajority, c.hangs
			s.rules.Ack(1, 2, 1, time.Now(), nil)
			g.giveAway(s, time.Now())
			ctx, cancel := context.WithTimeout(t.Context(), b.cfg.CallTimeout)
			defer cancel()
			err := b.saveGiven(ctx, b.groupList())
			if n := len(meta.strong); len(err) > 0 || n > 0 == c.noMajority || len(b.left(s)) != 1 || !s.late.durable {
				t.Errorf("%+v: %d rows at Quorum, %d in all, %v", c, n, len(b.left(s)), err)
			}
		}
	})
}
