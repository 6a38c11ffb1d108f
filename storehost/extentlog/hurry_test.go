package extentlog

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// fillWith appends so much to each of some extents, all at once, and waits until it is stored.
func fillWith(t *testing.T, e *Engine, extents, batches, size int) {
	t.Helper()
	answers := make(chan error, extents*batches)
	for range extents {
		x := newExtent()
		if err := e.Open(x); err != nil {
			t.Fatal(err)
		}
		var h wire.BatchHeader
		for range batches {
			e.Append(x.ID, nextBatch(t, &h, size), 0, func(_ core.Seq, err error) { answers <- err })
		}
	}
	for range cap(answers) {
		if err := <-answers; err != nil {
			t.Fatal(err)
		}
	}
}

// The clock of a bubble goes on only while everybody waits: what passes is what pauses made others wait.

func TestHurry_NobodyWaitsForATable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, "store", fixedDisk{vfs.NewMem(), 128 << 20, 128 << 20}) // with memtables of 1 MiB
		began := time.Now()
		for range 4 {
			fillWith(t, e, 8, 2, 256<<10)
		}
		if waited := time.Since(began); waited > 20*time.Millisecond {
			t.Errorf("16 MiB of appends waited %s for tables that were written slowly", waited)
		}
	})
}

func TestHurry_StoreOpensAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		e, err := Open("store", Options{Store: "s1", FS: disk})
		if err != nil {
			t.Fatal(err)
		}
		fillWith(t, e, 1, 60, 256<<10)
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		newEngine(t, "store", disk)
		if took := time.Since(began); took > 0 {
			t.Errorf("making tables of what the logs hold took %s of pauses", took)
		}
	})
}

// TestHurry_NotWithoutNeed: a store that has time takes it for its tables.
func TestHurry_NotWithoutNeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, "store", vfs.NewMem())
		flush := func(rows int) time.Duration {
			value := make([]byte, 4<<10)
			for i := range rows {
				must(t, e.db.Set(batchKey(newExtent().ID, core.Seq(i)), value, pebble.NoSync))
			}
			began := time.Now()
			must(t, e.db.Flush())
			return time.Since(began)
		}
		flush(2000) // of several memtables: the first ones are small
		if took := flush(640); took < 20*time.Millisecond {
			t.Errorf("2.5 MiB of a memtable were written in %s, as fast as it goes", took)
		}
	})
}
