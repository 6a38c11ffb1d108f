package controller

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// numbered is the extent, or queue, of a number.
func numbered(n int) core.ExtentID { return core.ExtentID{ID: core.ID{14: byte(n >> 8), 15: byte(n)}} }

// TestChanges_NameEachExtentOnce: whoever asks again and again, page by page, from where the last answer ended, is told
// of every change, or that it missed some.
func TestChanges_NameEachExtentOnce(t *testing.T) {
	const most, extents = 20, 40
	for seed := range uint64(200) {
		die := rand.New(rand.NewPCG(seed, 1))
		c := newChanges(most)
		var after uint64
		missing := make(map[core.ExtentID]bool) // changed and not named yet
		for range 100 {
			for range die.IntN(12) {
				x := numbered(die.IntN(extents))
				c.add(changed{id: x})
				missing[x] = true
			}
			got := c.since(after, 1+die.IntN(8))
			if !got.complete {
				if len(missing) <= most {
					t.Fatalf("seed %d: %d changed extents are not named, though %d are remembered", seed, len(missing), most)
				}
				clear(missing)
			}
			twice := make(map[core.ExtentID]bool)
			for _, x := range got.changed {
				if twice[x.id] {
					t.Fatalf("seed %d: an extent is named twice", seed)
				}
				twice[x.id] = true
				delete(missing, x.id)
			}
			if after = got.counter; got.complete && !got.more && len(missing) > 0 {
				t.Fatalf("seed %d: %d changed extents are never named", seed, len(missing))
			}
		}
		if c.mu.order.Len() > most || len(c.mu.byID) != c.mu.order.Len() {
			t.Fatalf("seed %d: %d extents are remembered, by %d ids", seed, c.mu.order.Len(), len(c.mu.byID))
		}
	}
}

// TestChanges_OfAnotherCount: a counter that was never answered is of another count, or made up.
func TestChanges_OfAnotherCount(t *testing.T) {
	c := newChanges(2)
	if got := c.since(1, 10); got.complete || got.counter != 0 {
		t.Errorf("after a counter that was not reached yet: %+v", got)
	}
	if got := c.since(0, 10); !got.complete || got.more || len(got.changed) != 0 {
		t.Errorf("nothing was changed: %+v", got)
	}
}

// TestChanges_KeepTheQueue: it is known after later changes, too.
func TestChanges_KeepTheQueue(t *testing.T) {
	c, queue := newChanges(10), core.QueueID{ID: core.ID{1}}
	c.add(changed{id: numbered(1), queue: queue})
	c.add(changed{id: numbered(1)})
	if got := c.since(0, 10).changed; len(got) != 1 || got[0].queue != queue || got[0].counter != 2 {
		t.Errorf("%+v", got)
	}
}

// answering is a store whose changes all end in one way.
type answering struct {
	metadata.Store
	err error
}

func (s answering) Insert(context.Context, metadata.Table, metadata.Key, []byte) error { return s.err }
func (s answering) Update(context.Context, metadata.Table, metadata.Key, metadata.Version, []byte, time.Duration) error {
	return s.err
}
func (s answering) Delete(context.Context, metadata.Table, metadata.Key, metadata.Version) error {
	return s.err
}
func (s answering) Put(context.Context, metadata.Table, metadata.Key, []byte, time.Time, time.Duration, metadata.Consistency) error {
	return s.err
}
func (s answering) PutAll(context.Context, metadata.Table, []metadata.Row, metadata.Consistency) error {
	return s.err
}
func (s answering) Remove(context.Context, metadata.Table, metadata.Key, time.Time, metadata.Consistency) error {
	return s.err
}

// TestNoting_EveryChangeCounts: whatever call changes a row of an extent, and also when its outcome is not known.
func TestNoting_EveryChangeCounts(t *testing.T) {
	id, queue, now := numbered(7), core.QueueID{ID: core.ID{1}}, time.Now()
	keys := map[metadata.Table][]metadata.Key{
		metadata.Seals:   {metadata.SealKey(id)},
		metadata.Extents: {metadata.ExtentKey(queue, id)},
		metadata.Work:    {metadata.HintKey(metadata.HintOpen, id), metadata.HintKey(metadata.HintLive, id)},
	}
	calls := map[string]func(metadata.Store, metadata.Table, metadata.Key) error{
		"insert": func(s metadata.Store, t metadata.Table, k metadata.Key) error {
			return s.Insert(context.Background(), t, k, nil)
		},
		"update": func(s metadata.Store, t metadata.Table, k metadata.Key) error {
			return s.Update(context.Background(), t, k, 1, nil, 0)
		},
		"delete": func(s metadata.Store, t metadata.Table, k metadata.Key) error {
			return s.Delete(context.Background(), t, k, 1)
		},
		"put": func(s metadata.Store, t metadata.Table, k metadata.Key) error {
			return s.Put(context.Background(), t, k, nil, now, 0, metadata.One)
		},
		"put all": func(s metadata.Store, t metadata.Table, k metadata.Key) error {
			return s.PutAll(context.Background(), t, []metadata.Row{{Key: k}}, metadata.One)
		},
		"remove": func(s metadata.Store, t metadata.Table, k metadata.Key) error {
			return s.Remove(context.Background(), t, k, now, metadata.One)
		},
	}
	for name, call := range calls {
		for table, some := range keys {
			for _, k := range some {
				for _, x := range []struct {
					err  error
					want bool
				}{
					{nil, true},
					{core.Errorf(core.CodeUnknown, "x"), true},
					{core.Errorf(core.CodeDeadline, "x"), true},
					{context.Canceled, true},
					{fmt.Errorf("torn"), true},
					{core.Errorf(core.CodeConflict, "x"), name == "put all"},
					{core.Errorf(core.CodeUnavailable, "x"), name == "put all"},
				} {
					c := newChanges(10)
					if err := call(noting{heeded{answering{err: x.err}, &gate{}}, c}, table, k); err != x.err {
						t.Errorf("%s in %s answers %v, not %v", name, table.Name, err, x.err)
					}
					got := c.since(0, 10).changed
					if len(got) > 0 != x.want || x.want && (got[0].id != id || table == metadata.Extents && got[0].queue != queue) {
						t.Errorf("%s in %s that ends with %v is noted as %+v", name, table.Name, x.err, got)
					}
				}
			}
		}
	}
}

// TestNoting_OtherRowsDoNotCount: also not hints of other kinds, nor rows with names that are no ids.
func TestNoting_OtherRowsDoNotCount(t *testing.T) {
	c := newChanges(10)
	meta := memory.New()
	defer meta.Close()
	s := noting{heeded{meta, &gate{}}, c}
	id := numbered(7)
	other := metadata.HintKey(metadata.HintOpen, id)
	other.Partition = "open" // of an earlier version
	for k, table := range map[metadata.Key]metadata.Table{
		metadata.DeletedQueueKey(core.QueueID{ID: core.ID{3}}): metadata.Work,
		other: metadata.Work,
		{Partition: metadata.SealKey(id).Partition, Row: "no id"}: metadata.Extents,
		metadata.DoneKey(core.GroupID{ID: core.ID{3}}, id, 1):     metadata.Dones,
	} {
		if err := s.Put(t.Context(), table, k, []byte("{}"), time.Now(), 0, metadata.One); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.since(0, 10); len(got.changed) != 0 {
		t.Errorf("noted as changed: %+v", got.changed)
	}
}
