package inspect

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// TestScan_AsFarAsAnyReplicaLetsItBeRead has one that is damaged, one that is behind, and one that is down.
func TestScan_AsFarAsAnyReplicaLetsItBeRead(t *testing.T) {
	h := newHarness(t)
	e := core.Extent{ID: core.ExtentID{ID: core.NewID(time.Now())}, Replicas: []core.HostID{"a", "b", "c", "d"}}
	h.serve(map[core.HostID]*heldTo{"a": {last: 9, damaged: true}, "b": {last: 2}, "c": {last: 5}, "d": nil})
	if seqs, err := h.seqsOf(e); err != nil || len(seqs) != 5 {
		t.Errorf("%v, %v; want 1 to 5", seqs, err)
	}
	h.serve(map[core.HostID]*heldTo{"b": {last: 2}, "a": nil, "c": nil, "d": nil})
	if seqs, err := h.seqsOf(e); err != nil || len(seqs) != 2 {
		t.Errorf("%v, %v; want 1 and 2", seqs, err)
	}
	h.serve(map[core.HostID]*heldTo{"a": nil, "b": nil, "c": nil, "d": nil})
	if seqs, err := h.seqsOf(e); err == nil {
		t.Errorf("%v although no replica answers", seqs)
	}
}

// TestScan_HolderThatIsBehindIsNotTheEnd lists a sealed extent.
func TestScan_HolderThatIsBehindIsNotTheEnd(t *testing.T) {
	h := newHarness(t)
	e := core.Extent{ID: core.ExtentID{ID: core.NewID(time.Now())}, Replicas: []core.HostID{"a", "b"}}
	h.sealed(metadata.SealRecord{Extent: e, State: core.ExtentSealed, L: 5, Holders: e.Replicas})
	for behind, whole := range map[core.HostID]core.HostID{"a": "b", "b": "a"} {
		h.serve(map[core.HostID]*heldTo{behind: {last: 2}, whole: {last: 5}})
		if seqs, err := h.seqsOf(e); err != nil || len(seqs) != 5 {
			t.Errorf("with %s behind: %v, %v; want 1 to 5", behind, seqs, err)
		}
	}
	h.serve(map[core.HostID]*heldTo{"a": {last: 2}, "b": nil})
	if seqs, err := h.seqsOf(e); err == nil {
		t.Errorf("%v without an error, want one: there are 5", seqs)
	}
}

// TestScan_RetiredExtentIsEmpty: it counts no more, though its stores may not have removed it yet.
func TestScan_RetiredExtentIsEmpty(t *testing.T) {
	h := newHarness(t)
	e := core.Extent{ID: core.ExtentID{ID: core.NewID(time.Now())}, Replicas: []core.HostID{"a", "b"}}
	h.sealed(metadata.SealRecord{Extent: e, State: core.ExtentRetired, L: 5, Holders: e.Replicas})
	for _, a := range []*heldTo{{last: 5}, nil} {
		h.serve(map[core.HostID]*heldTo{"a": a, "b": nil})
		if seqs, err := h.seqsOf(e); err != nil || len(seqs) > 0 {
			t.Errorf("%v, %v; want nothing", seqs, err)
		}
	}
}

// TestScan_GivenUpExtentEndsWhereItIsLost: nobody waits for what no store has any more.
func TestScan_GivenUpExtentEndsWhereItIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		e := core.Extent{ID: core.ExtentID{ID: core.NewID(time.Now())}, Replicas: []core.HostID{"a", "b"}}
		row := metadata.SealRecord{Extent: e, State: core.ExtentSealed, L: 5, Holders: []core.HostID{"c"}, Home: core.Home{Kind: core.HomeOwn}}
		if err := row.GiveUp(4, 0, time.Now()); err != nil {
			t.Fatal(err)
		}
		h.sealed(row)
		h.serve(map[core.HostID]*heldTo{"a": {last: 2}, "b": {last: 3}, "c": {}})
		began := time.Now()
		if seqs, err := h.seqsOf(e); err != nil || len(seqs) != 3 || time.Since(began) > 2*time.Second {
			t.Errorf("%v, %v after %s; want 1 to 3 at once", seqs, err, time.Since(began))
		}
	})
}

// TestListDue_OneIsBehind: whoever asks tries again while a holder has not heard of its end, whatever stores say that
// are no holders.
func TestListDue_OneIsBehind(t *testing.T) {
	h := newHarness(t)
	e := core.Extent{ID: core.ExtentID{ID: core.NewID(time.Now())}, Replicas: []core.HostID{"a", "b", "c"}}
	h.serve(map[core.HostID]*heldTo{"a": {last: 2}, "b": nil, "c": nil})
	_, err := New(Config{}, h).listDue(t.Context(), h.Holders(e, []core.HostID{"a"}), &pb.ListDueRequest{Extent: e.ID.ID[:], UpTo: 5})
	if core.CodeOf(err) != core.CodeIncomplete {
		t.Errorf("%v, want that one is behind", err)
	}
}

// TestScan_BehindTheLargestSeq goes on behind a page token that somebody made up: the extent is not listed anew.
func TestScan_BehindTheLargestSeq(t *testing.T) {
	h := newHarness(t)
	e := core.Extent{ID: core.ExtentID{ID: core.NewID(time.Now())}, Queue: core.QueueID{ID: core.NewID(time.Now())}, Replicas: []core.HostID{"a"}}
	h.serve(map[core.HostID]*heldTo{"a": {last: 5}})
	if err := metadata.Write(t.Context(), h.meta, metadata.Extents, metadata.ExtentKey(e.Queue, e.ID), metadata.ExtentRecord{Extent: e}, time.Now(), 0, metadata.One); err != nil {
		t.Fatal(err)
	}
	x := New(Config{}, h)
	for after, want := range map[core.Seq]int{0: 5, 4: 1, 5: 0, math.MaxUint64: 0} {
		n := 0
		err := x.scan(t.Context(), e.Queue, core.GroupID{}, core.Receipt{Extent: e.ID, Seq: after}, nil, func(stored) (bool, error) {
			n++
			return true, nil
		})
		if err != nil || n != want {
			t.Errorf("behind seq %d: %d messages, %v; want %d", after, n, err, want)
		}
	}
}

// TestScan_StoreThatRepeatsItself sends the same record to each question: another store is asked, and a listing ends
// although there is none.
func TestScan_StoreThatRepeatsItself(t *testing.T) {
	h := newHarness(t)
	e := core.Extent{ID: core.ExtentID{ID: core.NewID(time.Now())}, Replicas: []core.HostID{"a", "b"}}
	h.sealed(metadata.SealRecord{Extent: e, State: core.ExtentSealed, L: 3, Holders: e.Replicas})
	h.serve(map[core.HostID]*heldTo{"a": {last: 3, again: true}, "b": {last: 3}})
	if seqs, err := h.seqsOf(e); err != nil || len(seqs) != 3 {
		t.Errorf("%v, %v; want 1 to 3", seqs, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	h.serve(map[core.HostID]*heldTo{"a": {last: 3, again: true}, "b": nil})
	_, err := New(Config{}, h).scanExtent(ctx, e, core.GroupID{}, 1, func(stored) (bool, error) { return true, nil })
	if err == nil || ctx.Err() != nil {
		t.Errorf("the listing ends with %v", err)
	}
}
