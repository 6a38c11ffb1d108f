package extentlog

import (
	"testing"
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
