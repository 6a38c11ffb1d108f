package extentlog

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/wire"
)

// TestVitals_Log: each byte of a batch is in the log alone, then drained, or dropped.
func TestVitals_Log(t *testing.T) {
	e := turning(t, vfs.NewMem())
	long, short := newExtent(), newExtent()
	var lh, sh wire.BatchHeader
	must(t, e.Open(long))
	must(t, e.Open(short))
	appendBatch(t, e, long, nextBatch(t, &lh, 3000))
	appendBatch(t, e, short, nextBatch(t, &sh, 2000))
	both := e.journal.vitals(time.Now())
	if both.UndrainedBytes < 5000 || both.Bytes == 0 || both.Age == 0 || both.DrainedBytes+both.DroppedBytes > 0 {
		t.Errorf("two batches are in the log: %+v", both)
	}
	must(t, removeTold(e, short, 1))
	if v := e.journal.vitals(time.Now()); v.DroppedBytes < 2000 || v.UndrainedBytes+v.DroppedBytes != both.UndrainedBytes {
		t.Errorf("one of them is removed: %+v, before %+v", v, both)
	}
	drainAll(t, e)
	if v := e.journal.vitals(time.Now()); v.UndrainedBytes != 0 || v.DrainedBytes+v.DroppedBytes != both.UndrainedBytes || v.FreeBytes != v.Bytes || v.Age != 0 {
		t.Errorf("all is drained: %+v, before %+v", v, both)
	}
}

// TestVitals_Removed: bytes of removed extents count while they take space, and those that are moved to free it.
func TestVitals_Removed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := openHostile(t, vfs.NewMem())
		defer func() { must(t, e.Close()) }()
		stays, goes := newWriter(t, e), newWriter(t, e)
		stays.append(2, 10<<10)
		goes.append(30, 10<<10)
		drainAll(t, e)
		must(t, removeTold(e, goes.x, 1))
		time.Sleep(3 * time.Second)
		if v := e.Vitals(); v.RemovedBytes < 200<<10 || v.MovedBytes != 0 {
			t.Errorf("%d bytes of removed extents take space, and %d were moved", v.RemovedBytes, v.MovedBytes)
		}
		repackAll(e)
		time.Sleep(3 * time.Second)
		if v := e.Vitals(); v.RemovedBytes > 1<<10 || v.MovedBytes < 20<<10 {
			t.Errorf("%d bytes of removed extents take space, and %d were moved", v.RemovedBytes, v.MovedBytes)
		}
		stays, goes = newWriter(t, e), newWriter(t, e)
		stays.append(30, 10<<10)
		goes.append(10, 10<<10)
		drainAll(t, e)
		must(t, removeTold(e, goes.x, 1))
		time.Sleep(3 * time.Second)
		if v := e.Vitals(); v.RemovedBytes < 50<<10 || v.MovedBytes > 30<<10 {
			t.Errorf("where too much lives: %d bytes of removed extents take space, and %d were moved", v.RemovedBytes,
				v.MovedBytes)
		}
	})
}
