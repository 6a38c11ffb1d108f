package outputhost

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/metadata"
)

// TestMerge_OwnerWithAClockBehindWritesAgain: its checkpoint was removed by one whose clock is ahead, and what it saves then must not
// vanish: the share may be its own again.
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
		b.saver.save(t.Context(), b.saver.all(false), false)
	}
	if rows, err := b.checkpoints(t.Context(), metadata.CheckpointPartition(g.id, s.extent.ID), metadata.One); err != nil || len(rows) != 1 {
		t.Fatalf("%d rows, %v; want that of this host alone", len(rows), err)
	}
	save(5, behind.Add(time.Second))
	state, others, _, err := b.savedState(t.Context(), metadata.CheckpointKey(g.id, s.extent.ID, 0, b.deps.Members.Self().Run), g.counts(s.extent, 0))
	if err != nil || len(others) != 1 || state.Frontier() != 5 {
		t.Errorf("frontier %d, %d others, %v; want what the other saved since", state.Frontier(), len(others), err)
	}
}
