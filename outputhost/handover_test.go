package outputhost

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/membership/static"
	"github.com/columbamq/columba/metadata"
)

// TestMerge_OwnerWithAClockBehindWritesAgain: its checkpoint was removed by one whose clock is ahead, and what it saves
// then must not vanish: the share may be its own again.
func TestMerge_OwnerWithAClockBehindWritesAgain(t *testing.T) {
	b := newHarness(t)
	g, s := b.share(10, 6)
	behind := time.Now().Add(-10 * time.Minute)
	run := core.RunID{ID: core.NewID(behind)}
	key := metadata.CheckpointKey(g.id, s.extent.ID, 0, run)
	save := func(upTo core.Seq, at time.Time) {
		state := dispatch.StartAfter(upTo)
		if err := b.meta.Put(t.Context(), metadata.Checkpoints, key, state.Append(nil), at, 0, metadata.One); err != nil {
			t.Fatal(err)
		}
	}
	save(2, behind)
	g.mu.Lock()
	s.others = map[metadata.Key]*other{}
	g.mu.Unlock()
	for range 3 {
		if err := g.mergeInto(t.Context(), s, b.deps.Now()); err != nil {
			t.Fatal(err)
		}
		b.saver.note(g, saveNow)
		b.saver.save(t.Context(), false)
	}
	if rows, err := b.checkpoints(t.Context(), metadata.CheckpointPartition(g.id, s.extent.ID), metadata.One); err != nil || len(rows) != 1 {
		t.Fatalf("%d rows, %v; want that of this host alone", len(rows), err)
	}
	save(5, behind.Add(time.Second))
	from, err := b.savedState(t.Context(), metadata.CheckpointKey(g.id, s.extent.ID, 0, b.deps.Members.Self().Run), g.counts(s.extent, 0), ownerReads, 0)
	if err != nil || len(from.others) != 1 || from.state.Frontier() != 5 {
		t.Errorf("frontier %d, %d others, %v; want what the other saved since", from.state.Frontier(), len(from.others), err)
	}
}

// TestMerge_OwnerOfBeforeSettlesLate: a consumer of the owner of before acks a message for as long as that one takes
// it. The owner of now hears of it, though the other's checkpoint was the same for long.
func TestMerge_OwnerOfBeforeSettlesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t)
		g, s := b.share(10, 6)
		run := core.RunID{ID: core.NewID(time.Now())}
		if err := b.deps.Members.(*static.Monitor).Set([]membership.Host{b.deps.Members.Self(), {ID: "before", Roles: []string{"outputhost"}, Address: "before:1", Run: run}}); err != nil {
			t.Fatal(err)
		}
		key := metadata.CheckpointKey(g.id, s.extent.ID, 0, run)
		settle := func(upTo core.Seq) {
			state := dispatch.StartAfter(upTo)
			if err := b.meta.Put(t.Context(), metadata.Checkpoints, key, state.Append(nil), time.Now(), 0, metadata.One); err != nil {
				t.Fatal(err)
			}
		}
		settle(2)
		g.mu.Lock()
		s.others = map[metadata.Key]*other{key: {}}
		g.mu.Unlock()
		round := func() {
			time.Sleep(mergeEvery)
			if err := g.mergeOthers(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.saver.note(g, saveNow)
			b.saver.save(t.Context(), false)
		}
		for began := time.Now(); time.Since(began) < lateFor; {
			round()
		}
		settle(5)
		round()
		if f := s.rules.Frontier(); f != 5 {
			t.Errorf("the owner of now has %d settled messages, want the 5 of the owner of before", f)
		}
		for range 100 {
			round()
		}
		if rows, err := b.checkpoints(t.Context(), key.Partition, metadata.One); err != nil || len(rows) != 1 {
			t.Errorf("%d checkpoints, %v; want that of this host alone", len(rows), err)
		}
	})
}
