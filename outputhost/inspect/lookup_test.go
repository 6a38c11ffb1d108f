package inspect

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/wire"
)

// TestLookUp_RetiredExtentWithoutStores: a look-up ends although no store of a retired extent is there.
func TestLookUp_RetiredExtentWithoutStores(t *testing.T) {
	h := newHarness(t)
	e := core.Extent{ID: core.ExtentID{ID: core.NewID(time.Now())}, Replicas: []core.HostID{"a"}}
	h.sealed(metadata.SealRecord{Extent: e, State: core.ExtentRetired, L: 5, Holders: e.Replicas})
	left, ended := lookBytes, make(chan error, 1)
	go func() {
		more, err := New(Config{}, h).eachSinceIn(t.Context(), e, time.Time{}, &left, func(*wire.Record) bool { return true })
		if err == nil && !more {
			err = core.Errorf(core.CodeInternal, "the look-up stops at the extent")
		}
		ended <- err
	}()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the look-up does not end")
	}
}

// opened writes the row of an extent that is not sealed, on these stores.
func (h *harness) opened(queue core.QueueID, kind core.ExtentKind, replicas ...core.HostID) core.Extent {
	h.t.Helper()
	e := core.Extent{ID: core.ExtentID{ID: core.NewID(time.Now())}, Queue: queue, Kind: kind, Replicas: replicas}
	if err := metadata.Write(h.t.Context(), h.meta, metadata.Extents, metadata.ExtentKey(queue, e.ID), metadata.ExtentRecord{Extent: e}, time.Now(), 0, metadata.One); err != nil {
		h.t.Fatal(err)
	}
	return e
}

// TestLookUp_AsksAllReplicas: a record that one replica has may be kept by the seal, and one on a replica that does not
// answer, too.
func TestLookUp_AsksAllReplicas(t *testing.T) {
	h := newHarness(t)
	e := h.opened(core.QueueID{ID: core.NewID(time.Now())}, core.KindLog, "a", "b", "c")
	h.serve(map[core.HostID]*heldTo{"a": {last: 3}, "b": {last: 5}, "c": {last: 4}})
	if upTo, from, err := New(Config{}, h).appendedTo(t.Context(), e, time.Time{}); err != nil || upTo != 5 || len(from) != 1 || from[0].ID != "b" {
		t.Errorf("it goes up to seq %d, by %v, %v; want 5, by b", upTo, from, err)
	}
	for name, c := range map[string]*heldTo{"away": nil, "damaged": {last: 9, damaged: true}} {
		h.serve(map[core.HostID]*heldTo{"a": {last: 3}, "b": {last: 5}, "c": c})
		if upTo, _, err := New(Config{}, h).appendedTo(t.Context(), e, time.Time{}); core.CodeOf(err) != core.CodeUnavailable {
			t.Errorf("one is %s: it goes up to seq %d, %v", name, upTo, err)
		}
	}
}

// TestLookUp_Due finds what is due at some instants, also beside an extent that cannot be read, and says that it may
// have missed something while a record may yet vanish.
func TestLookUp_Due(t *testing.T) {
	h := newHarness(t)
	queue := core.QueueID{ID: core.NewID(time.Now())}
	h.opened(queue, core.KindTimer, "away")
	h.opened(queue, core.KindTimer, "a")
	for _, all := range []bool{false, true} {
		h.serve(map[core.HostID]*heldTo{"away": nil, "a": {last: 1, due: []int64{200}}})
		found := false
		err := New(Config{}, h).EachDue(t.Context(), queue, []int64{200}, func(*wire.Record) bool {
			found = true
			return !all
		})
		if !found || (err == nil) != all {
			t.Errorf("one extent cannot be read, all is found %v: found %v, %v", all, found, err)
		}
	}
	queue = core.QueueID{ID: core.NewID(time.Now())}
	h.opened(queue, core.KindTimer, "a")
	for _, tail := range []core.Seq{0, 1} {
		h.serve(map[core.HostID]*heldTo{"a": {last: 5, tail: tail, due: []int64{200, 100, 300, 100, 400}}})
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		var got []byte
		err := New(Config{}, h).EachDue(ctx, queue, []int64{300, 100, 150, 300}, func(r *wire.Record) bool {
			got = append(got, r.Payload...)
			return true
		})
		cancel()
		if whole := bytes.Equal(slices.Sorted(slices.Values(got)), []byte{2, 3, 4}); whole != (tail == 0) || (err == nil) != whole || err != nil && core.CodeOf(err) != core.CodeIncomplete {
			t.Errorf("with %d records that may vanish: %v, %v", tail, got, err)
		}
	}
}

// oneCopy is a store in which, at One, some rows are missing.
type oneCopy struct {
	metadata.Store
	lacks metadata.Table
}

func (o oneCopy) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	if t == o.lacks && c == metadata.One {
		return metadata.Row{}, metadata.NoRow(t, k)
	}
	return o.Store.Get(ctx, t, k, c)
}

func (o oneCopy) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	if t == o.lacks && c == metadata.One {
		return nil, false, nil
	}
	return o.Store.List(ctx, t, partition, after, limit, c)
}

// TestLookUp_RowsMissingInOneCopy: a record is appended again if the look-up does not find it, so a look-up goes by no
// single copy of the metadata.
func TestLookUp_RowsMissingInOneCopy(t *testing.T) {
	for _, lacks := range []metadata.Table{metadata.Extents, metadata.Seals} {
		h := newHarness(t)
		e := h.opened(core.QueueID{ID: core.NewID(time.Now())}, core.KindLog, "a")
		h.sealed(metadata.SealRecord{Extent: e, State: core.ExtentSealed, L: 2, Holders: []core.HostID{"b"}}) // repaired: it is on b now
		h.serve(map[core.HostID]*heldTo{"b": {last: 2}})
		h.stores = []core.HostID{"b"}
		h.meta = oneCopy{h.meta, lacks}
		found := 0
		err := New(Config{}, h).EachSince(t.Context(), e.Queue, time.Time{}, func(*wire.Record) bool {
			found++
			return true
		})
		if err != nil || found != 2 {
			t.Errorf("a copy lacks the %s: %d records are found, %v; want 2", lacks.Name, found, err)
		}
	}
}

// TestScan_RowsMissingInOneCopy: a listing shows what a majority of the metadata has.
func TestScan_RowsMissingInOneCopy(t *testing.T) {
	for _, lacks := range []metadata.Table{metadata.Extents, metadata.Seals} {
		h := newHarness(t)
		e := h.opened(core.QueueID{ID: core.NewID(time.Now())}, core.KindLog, "a")
		h.sealed(metadata.SealRecord{Extent: e, State: core.ExtentSealed, L: 2, Holders: []core.HostID{"b"}})
		h.serve(map[core.HostID]*heldTo{"b": {last: 2}})
		h.stores = []core.HostID{"b"}
		h.meta = oneCopy{h.meta, lacks}
		listed := 0
		err := New(Config{}, h).scan(t.Context(), e.Queue, core.GroupID{}, core.Receipt{}, nil, func(stored) (bool, error) {
			listed++
			return true, nil
		})
		if err != nil || listed != 2 {
			t.Errorf("a copy lacks the %s: %d records are listed, %v; want 2", lacks.Name, listed, err)
		}
	}
}
