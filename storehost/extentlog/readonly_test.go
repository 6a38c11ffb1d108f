package extentlog

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// told is a disk that says what it is told to.
type told struct {
	vfs.FS
	free *atomic.Uint64
}

func (d told) GetDiskUsage(string) (vfs.DiskUsage, error) {
	const total = 1 << 30
	free := d.free.Load()
	return vfs.DiskUsage{TotalBytes: total, AvailBytes: free, UsedBytes: total - free}, nil
}

// TestEngine_WritesAgainWhenThereIsRoom: a store that was started on a full disk needs no restart.
func TestEngine_WritesAgainWhenThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := told{vfs.NewMem(), new(atomic.Uint64)}
		disk.free.Store(1 << 29)
		e := newEngine(t, "store", disk)
		x := newExtent()
		var h wire.BatchHeader
		if err := e.Open(x); err != nil {
			t.Fatal(err)
		}
		answer := make(chan error)
		e.Append(x.ID, nextBatch(t, &h, 1<<20), 0, func(_ core.Seq, err error) { answer <- err })
		if err := <-answer; err != nil {
			t.Fatal(err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}

		disk.free.Store(1 << 20)
		e = newEngine(t, "store", disk)
		if _, err := e.Fence(x, 1); core.CodeOf(err) != core.CodeNoSpace {
			t.Fatalf("fence without room: %v, want %q", err, core.CodeNoSpace)
		}
		if !e.Vitals().Refuses {
			t.Error("it does not say that it refuses")
		}
		read := func(when string) {
			t.Helper()
			if b, err := e.Read(x.ID, 1, 1, 1); err != nil || len(b) == 0 {
				t.Errorf("read %s: %d bytes, %v", when, len(b), err)
			}
		}
		read("without room")
		disk.free.Store(1 << 29)
		time.Sleep(3 * time.Second)
		if s, err := e.Fence(x, 1); err != nil || s.Last != 1 {
			t.Errorf("fence with room: last %d, %v; want 1", s.Last, err)
		}
		read("with room")
		if err := removeTold(e, x, 2); err != nil {
			t.Errorf("remove with room: %v", err)
		}
	})
}

// TestOpen_TablesCannotBeMade: the disk said that there was room, and there is none. The store serves what it has.
func TestOpen_TablesCannotBeMade(t *testing.T) {
	disk, full := tableless()
	e := newEngine(t, "store", disk)
	x := newExtent()
	must(t, e.Open(x))
	var h wire.BatchHeader
	for range 8 {
		appendBatch(t, e, x, nextBatch(t, &h, 64<<10))
	}
	must(t, e.Close())
	full.Store(true)
	e = newEngine(t, "store", disk)
	if b, err := e.Read(x.ID, 1, h.Last(), 1<<20); err != nil || len(b) < 8*64<<10 {
		t.Errorf("read: %d bytes, %v; want all", len(b), err)
	}
	if s, err := e.Fence(x, 1); err != nil || s.Last != h.Last() {
		t.Errorf("fence: %+v, %v; want all of it", s, err)
	}
}
