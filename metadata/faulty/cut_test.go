package faulty_test

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/faulty"
)

// TestReplicas_Cut: one copy answers at One only, nothing gets from one side to the other, and both have everything
// after the repair.
func TestReplicas_Cut(t *testing.T) {
	for seed := range uint64(20) {
		r := faulty.NewReplicas(faulty.Divergence{Seed: seed})
		apart, ctx, now := r.Apart(), t.Context(), time.Now()
		k := func(row string) metadata.Key { return metadata.Key{Partition: "p", Row: row} }
		put := func(s metadata.Store, row string, c metadata.Consistency) error {
			return s.Put(ctx, metadata.Extents, k(row), []byte(row), now, 0, c)
		}
		has := func(s metadata.Store, row string, c metadata.Consistency) bool {
			_, err := s.Get(ctx, metadata.Extents, k(row), c)
			return err == nil
		}
		for _, err := range []error{put(r, "before", metadata.Quorum), put(apart, "apart", metadata.Quorum)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		r.Cut()
		for _, err := range []error{put(r, "near", metadata.Quorum), put(apart, "far", metadata.One)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		refused := []error{put(apart, "x", metadata.Quorum), apart.Insert(ctx, metadata.Seals, k("x"), []byte("{}"))}
		for _, err := range refused {
			if core.CodeOf(err) != core.CodeUnavailable {
				t.Errorf("a call of a minority that needs a majority: %v", err)
			}
		}
		if !has(apart, "before", metadata.One) || !has(apart, "far", metadata.One) || has(apart, "near", metadata.One) || has(apart, "before", metadata.Quorum) {
			t.Error("the minority does not see its own copy alone")
		}
		if !has(r, "before", metadata.Quorum) || !has(r, "near", metadata.Serial) || has(r, "far", metadata.Serial) {
			t.Error("the majority does not see its own copies alone")
		}
		r.Rejoin()
		if !has(apart, "near", metadata.Quorum) {
			t.Error("a read at Quorum after the cut misses what was written at Quorum")
		}
		r.Repair()
		if !has(apart, "far", metadata.One) || !has(r, "far", metadata.Quorum) || has(r, "x", metadata.Quorum) {
			t.Error("after the repair the copies differ")
		}
	}
}
