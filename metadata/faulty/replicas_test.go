package faulty_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/faulty"
	"github.com/columbamq/columba/metadata/metadatatest"
)

// Replicas that do not differ are a store as all others.
func TestReplicas_Equal(t *testing.T) {
	metadatatest.Run(t, func(*testing.T) metadata.Store { return faulty.NewReplicas(faulty.Divergence{}) })
}

// A client that writes and reads at Quorum sees a store as all others, whatever the replicas lack.
func TestReplicas_Quorum(t *testing.T) {
	for seed, d := range []faulty.Divergence{{Never: 1}, {Late: 1, Delay: time.Millisecond}, {Late: 0.4, Never: 0.4, Delay: 100 * time.Microsecond}} {
		d.Seed = uint64(seed)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			metadatatest.Run(t, func(*testing.T) metadata.Store { return metadatatest.AtQuorum{Store: faulty.NewReplicas(d)} })
		})
	}
}

// Changes that only Serial calls find are linearizable.
func TestReplicas_Undecided(t *testing.T) {
	metadatatest.RunUncertain(t, func(*testing.T) metadata.Store {
		return metadatatest.AtQuorum{Store: faulty.NewReplicas(faulty.Divergence{Seed: 1, Late: 0.4, Never: 0.4, Delay: 100 * time.Microsecond, Undecided: 0.3})}
	})
}

// reads is how often each answer comes when one row is read many times.
func reads(t *testing.T, s metadata.Store, table metadata.Table, c metadata.Consistency) map[string]int {
	t.Helper()
	got := map[string]int{}
	for range 60 {
		row, err := s.Get(t.Context(), table, key("a"), c)
		rows, _, lerr := s.List(t.Context(), table, "p", "", 10, c)
		if err != nil && core.CodeOf(err) != core.CodeNotFound || lerr != nil {
			t.Fatal(err, lerr)
		}
		if err != nil {
			got["none"]++
		} else {
			got[string(row.Value)]++
		}
		if len(rows) == 0 {
			got["list none"]++
		} else {
			got["list "+string(rows[0].Value)]++
		}
	}
	return got
}

func wantReads(t *testing.T, what string, got map[string]int, values ...string) {
	t.Helper()
	var want []string
	for _, v := range values {
		want = append(want, v, "list "+v)
	}
	for _, v := range want {
		if got[v] == 0 {
			t.Errorf("%s: %q is never read; read were %v", what, v, got)
		}
	}
	for v := range got {
		if !slices.Contains(want, v) {
			t.Errorf("%s: %q is read; wanted are %v alone", what, v, values)
		}
	}
}

func put(t *testing.T, s metadata.Store, value string, tick int, c metadata.Consistency) {
	t.Helper()
	if err := s.Put(t.Context(), puts, key("a"), []byte(value), time.Unix(int64(tick), 0), 0, c); err != nil {
		t.Fatal(err)
	}
}

// A row at One is missing on some replicas, older on others, and there after it was removed.
func TestReplicas_ShowsOldRowsAtOne(t *testing.T) {
	s := faulty.NewReplicas(faulty.Divergence{Seed: 1, Never: 1})
	put(t, s, "1", 1, metadata.Quorum)
	wantReads(t, "after a put", reads(t, s, puts, metadata.One), "1", "none")
	s.Repair()
	wantReads(t, "after a repair", reads(t, s, puts, metadata.One), "1")
	put(t, s, "2", 2, metadata.Quorum)
	wantReads(t, "after a second put", reads(t, s, puts, metadata.One), "1", "2")
	if err := s.Remove(t.Context(), puts, key("a"), time.Unix(3, 0), metadata.One); err != nil {
		t.Fatal(err)
	}
	if got := reads(t, s, puts, metadata.One); got["none"] == 0 || got["1"]+got["2"] == 0 {
		t.Errorf("after a removal: read were %v, want it to be there and gone", got)
	}
}

// A read at Quorum misses a write at One. Once it has seen it, no later one misses it.
func TestReplicas_ShowsNoWriteAtOneAtQuorum(t *testing.T) {
	missed, seen := 0, 0
	for seed := range uint64(50) {
		s := faulty.NewReplicas(faulty.Divergence{Seed: seed, Never: 1})
		put(t, s, "1", 1, metadata.One)
		found := false
		for range 10 {
			switch _, err := s.Get(t.Context(), puts, key("a"), metadata.Quorum); {
			case err == nil:
				found = true
			case found:
				t.Fatalf("seed %d: a read at Quorum misses what an earlier one saw", seed)
			default:
				missed++
			}
		}
		seen += map[bool]int{true: 1}[found]
	}
	if missed == 0 || seen == 0 {
		t.Errorf("%d reads at Quorum missed the write, in %d of 50 runs one saw it", missed, seen)
	}
}

// A CAS row at One is as it was before, and a change without an answer is seen by Serial calls alone.
func TestReplicas_ShowsOldRowsOfChanges(t *testing.T) {
	s := faulty.NewReplicas(faulty.Divergence{Seed: 1, Never: 1, Undecided: 1})
	if err := s.Insert(t.Context(), swaps, key("a"), []byte("1")); core.CodeOf(err) != core.CodeUnknown {
		t.Fatalf("insert: %v, want unknown", err)
	}
	wantReads(t, "undecided, at Quorum", reads(t, s, swaps, metadata.Quorum), "none")
	row, err := s.Get(t.Context(), swaps, key("a"), metadata.Serial)
	if err != nil || string(row.Value) != "1" {
		t.Fatalf("serial read: %q, %v", row.Value, err)
	}
	wantReads(t, "decided, at One", reads(t, s, swaps, metadata.One), "1", "none")
	wantReads(t, "decided, at Quorum", reads(t, s, swaps, metadata.Quorum), "1")
	if err := s.Update(t.Context(), swaps, key("a"), row.Version, []byte("2"), 0); core.CodeOf(err) != core.CodeUnknown {
		t.Fatalf("update: %v, want unknown", err)
	}
	wantReads(t, "changed, at Quorum", reads(t, s, swaps, metadata.Quorum), "1")
	wantReads(t, "changed, at Serial", reads(t, s, swaps, metadata.Serial), "2")
	if err := s.Delete(t.Context(), swaps, key("a"), row.Version+1); core.CodeOf(err) != core.CodeUnknown {
		t.Fatalf("delete: %v, want unknown", err)
	}
	wantReads(t, "deleted, at Serial", reads(t, s, swaps, metadata.Serial), "none")
	if got := reads(t, s, swaps, metadata.One); got["1"]+got["2"] == 0 {
		t.Errorf("deleted, at One: read were %v, want the row on one replica", got)
	}
	s.Repair()
	wantReads(t, "after a repair", reads(t, s, swaps, metadata.One), "none")
}

// A late replica has the write after the delay, and an older write that comes then changes nothing.
func TestReplicas_LateWritesArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := faulty.NewReplicas(faulty.Divergence{Seed: 1, Late: 1, Delay: time.Minute})
		put(t, s, "1", 1, metadata.One)
		put(t, s, "2", 2, metadata.One)
		if got := reads(t, s, puts, metadata.One); got["2"] == 0 || got["1"]+got["none"] == 0 {
			t.Errorf("at once: read were %v, want the last one and others", got)
		}
		time.Sleep(time.Minute)
		wantReads(t, "after the delay", reads(t, s, puts, metadata.One), "2")
	})
}

// Whole sees the newest row and leaves the replicas as they are.
func TestReplicas_WholeRepairsNothing(t *testing.T) {
	s := faulty.NewReplicas(faulty.Divergence{Seed: 1, Never: 1, Undecided: 1})
	put(t, s, "1", 1, metadata.One)
	wantReads(t, "whole", reads(t, s.Whole(), puts, metadata.One), "1")
	wantReads(t, "at One", reads(t, s, puts, metadata.One), "1", "none")
	put(t, s.Whole(), "2", 2, metadata.One)
	wantReads(t, "put to the whole", reads(t, s, puts, metadata.One), "2")
	if err := s.Insert(t.Context(), swaps, key("a"), []byte("1")); core.CodeOf(err) != core.CodeUnknown {
		t.Fatalf("insert: %v, want unknown", err)
	}
	wantReads(t, "whole, undecided", reads(t, s.Whole(), swaps, metadata.One), "1")
	wantReads(t, "undecided, at Quorum", reads(t, s, swaps, metadata.Quorum), "none")
}

// The same seed shows the same.
func TestReplicas_Seed(t *testing.T) {
	run := func(seed uint64) (got []int) {
		s := faulty.NewReplicas(faulty.Divergence{Seed: seed, Never: 0.7})
		for tick := range 50 {
			put(t, s, fmt.Sprint(tick), tick+1, metadata.One)
			row, _ := s.Get(t.Context(), puts, key("a"), metadata.One)
			n := -1
			fmt.Sscan(string(row.Value), &n)
			got = append(got, n)
		}
		return got
	}
	if a, b := run(7), run(7); !slices.Equal(a, b) {
		t.Errorf("seed 7 gives %v, then %v", a, b)
	}
	if slices.Equal(run(7), run(8)) {
		t.Error("seeds 7 and 8 give the same")
	}
}
