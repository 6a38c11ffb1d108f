package metadata_test

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// TestConsumed_ByEpoch: done rows of two epochs are two rows, and each counts in its own. One of an extent that a
// rewind leaves as it is counts in all, and one under the key of before, without an epoch, in that of its value.
func TestConsumed_ByEpoch(t *testing.T) {
	ctx, s, now := t.Context(), memory.New(), time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC)
	defer s.Close()
	group := core.GroupID{ID: core.NewID(now)}
	twice, merged, old, other := core.ExtentID{ID: core.NewID(now)}, core.ExtentID{ID: core.NewID(now)}, core.ExtentID{ID: core.NewID(now)}, core.ExtentID{ID: core.NewID(now)}
	put := func(k metadata.Key, d metadata.DoneRecord, at time.Time) {
		t.Helper()
		if err := metadata.Write(ctx, s, metadata.Dones, k, d, at, 0, metadata.One); err != nil {
			t.Fatal(err)
		}
	}
	put(metadata.DoneKey(group, twice, 2), metadata.DoneRecord{L: 5, Epoch: 2}, now)
	put(metadata.DoneKey(group, twice, 1), metadata.DoneRecord{L: 5, Epoch: 1}, now.Add(time.Hour)) // late
	put(metadata.DoneKey(group, merged, 1), metadata.DoneRecord{L: 6, Epoch: 1, Stays: true}, now)
	put(metadata.Key{Partition: group.String(), Row: old.String()}, metadata.DoneRecord{L: 7, Epoch: 2}, now)
	for epoch := range uint64(12) { // more than a page
		put(metadata.DoneKey(group, other, epoch+10), metadata.DoneRecord{L: 5, Epoch: epoch + 10}, now)
	}
	for epoch, want := range map[uint64][]core.ExtentID{0: {merged}, 1: {twice, merged}, 2: {twice, merged, old}, 21: {merged, other}} {
		all, err := metadata.Consumed(ctx, s, group, epoch, metadata.One)
		if err != nil || len(all) != len(want) {
			t.Errorf("epoch %d: %d extents are consumed, %v; want %d", epoch, len(all), err, len(want))
		}
		for _, id := range want {
			if done, err := metadata.IsConsumed(ctx, s, group, id, epoch, metadata.One); err != nil || !done || all[id].IsZero() {
				t.Errorf("epoch %d: extent %s is not consumed, %v", epoch, id, err)
			}
		}
		if at := all[twice]; epoch == 2 && !at.Equal(now) {
			t.Errorf("it was consumed at %s, want %s", at, now)
		}
		for _, id := range []core.ExtentID{twice, old, other} {
			done, err := metadata.IsConsumed(ctx, s, group, id, epoch, metadata.One)
			if _, listed := all[id]; err != nil || done != listed {
				t.Errorf("epoch %d: extent %s is consumed: %v, %v; listed: %v", epoch, id, done, err, listed)
			}
		}
	}
}
