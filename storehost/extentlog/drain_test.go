package extentlog

import (
	"log/slog"
	"math/rand/v2"
	"path"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// drainAll has all batches that were appended go into the database.
func drainAll(t testing.TB, e *Engine) {
	t.Helper()
	j := e.journal
	must(t, e.do(request{control: true, stage: func(*group) error {
		j.toMark = false // it would begin a segment
		return j.endSegment()
	}}))
	was := j.keeper.free.Swap(1)
	defer j.keeper.free.Store(was)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for notify(j.keeper.wake); len(j.ring.Uses()) > 0; <-tick.C {
		must(t, e.refusing())
	}
}

// turning is an engine with the smallest ring there is.
func turning(t *testing.T, disk vfs.FS) *Engine {
	t.Helper()
	e, err := Open("store", Options{Store: "s1", FS: disk, Log: slog.New(slog.DiscardHandler), Ring: 1})
	must(t, err)
	t.Cleanup(func() { must(t, e.Close()) })
	return e
}

// TestDrain_RemovalsMeanwhile: what is removed while it is drained leaves nothing in the database, also when the extent
// comes back with other batches.
func TestDrain_RemovalsMeanwhile(t *testing.T) {
	synctest.Test(t, removalsMeanwhile) // else a machine under load looks like a disk that hangs
}

func removalsMeanwhile(t *testing.T) {
	slow := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSync && path.Ext(op.Path) == ".sst" {
			time.Sleep(time.Millisecond)
		}
		return nil
	}))
	e := turning(t, slow)
	type kept struct {
		x core.Extent
		h wire.BatchHeader
	}
	var mu sync.Mutex
	var all []kept
	var workers sync.WaitGroup
	for worker := range uint64(4) {
		workers.Go(func() {
			random := rand.New(rand.NewPCG(worker, 1))
			for range 60 {
				x, h := newExtent(), wire.BatchHeader{}
				must(t, e.Open(x))
				for range 1 + random.IntN(12) {
					appendBatch(t, e, x, nextBatch(t, &h, 1+random.IntN(20<<10)))
				}
				switch random.IntN(3) {
				case 0:
					must(t, removeTold(e, x, 1))
				case 1: // comes back
					must(t, removeTold(e, x, 1))
					_, err := e.Fence(x, 2)
					must(t, err)
					h = wire.BatchHeader{}
					for range 3 {
						_, err := e.Copy(x.ID, nextBatch(t, &h, 1+random.IntN(30<<10)))
						must(t, err)
					}
					fallthrough
				default:
					mu.Lock()
					all = append(all, kept{x, h})
					mu.Unlock()
				}
			}
		})
	}
	workers.Wait()
	drainAll(t, e)
	here := make(map[core.ExtentID]bool)
	for _, k := range all {
		here[k.x.ID] = true
		if v, err := e.Verify(t.Context(), k.x.ID); err != nil || !v.Sound {
			t.Errorf("extent %s: %+v, %v", k.x.ID, v, err)
		}
		if s, err := e.State(k.x.ID); err != nil || s.Last != k.h.Last() || s.Checksum != k.h.Checksum {
			t.Errorf("extent %s: %+v, %v; want it up to %d", k.x.ID, s, err, k.h.Last())
		}
	}
	iter, err := e.db.NewIter(nil)
	must(t, err)
	defer iter.Close()
	for ok := iter.SeekGE([]byte{prefixBatch}); ok && iter.Key()[0] == prefixBatch; ok = iter.Next() {
		if id := (core.ExtentID{ID: core.ID(iter.Key()[1:extentKeyLen])}); !here[id] {
			t.Fatalf("a batch of the removed extent %s is in the database", id)
		}
	}
}

// TestDrain_OddBatches: batches that are larger than all segments find room again and again, and the ring stays as
// large as it may be, and one of them.
func TestDrain_OddBatches(t *testing.T) {
	e := turning(t, vfs.NewMem())
	x, h := newExtent(), wire.BatchHeader{}
	must(t, e.Open(x))
	for range 20 {
		appendBatch(t, e, x, nextBatch(t, &h, 100<<10))
		appendBatch(t, e, x, nextBatch(t, &h, 10))
	}
	if _, all := e.journal.ring.Room(); all > e.journal.keeper.most+128<<10 {
		t.Errorf("the ring has %d bytes, and may have %d", all, e.journal.keeper.most)
	}
	if v, err := e.Verify(t.Context(), x.ID); err != nil || !v.Sound {
		t.Errorf("%+v, %v", v, err)
	}
}
