package extentlog

import (
	"bytes"
	"encoding/binary"
	"path"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// TestOpen_DamageBesideARemovedExtent: the index of timers is damaged where it goes on behind an extent that was
// removed. That costs the extent whose records are there, and not the store.
func TestOpen_DamageBesideARemovedExtent(t *testing.T) {
	disk := vfs.NewMem()
	e := turning(t, disk)
	gone, stays := newExtent(), newExtent()
	if after(gone.ID, stays.ID) {
		gone, stays = stays, gone
	}
	stays.Kind = core.KindTimer
	var h wire.BatchHeader
	must(t, e.Open(gone))
	must(t, e.Open(stays))
	appendBatch(t, e, gone, nextBatch(t, &wire.BatchHeader{}, 100))
	b := timerBatch(t, &h, 100, 1000)
	appendBatch(t, e, stays, b)
	drainAll(t, e)
	must(t, removeTold(e, gone, 1))
	must(t, e.Close())
	flipIn(t, disk, append(binary.LittleEndian.AppendUint64(nil, uint64(h.AppendTime)), b[wire.BatchHeaderLen:]...))
	e = turning(t, disk)
	_, err := e.Due(stays.ID, DueQuery{Until: 2000, UpTo: 1, MaxBytes: 1000}, func(DueRecord) {})
	if core.CodeOf(err) != core.CodeCorrupt {
		t.Errorf("the damaged row is read: %v", err)
	}
}

// TestOpen_OrphansOfOneThatIsBack: a drain that fails leaves a batch in a memtable behind the removal of its extent,
// which comes back. The memtable is written, and a power cut comes before the cut is.
func TestOpen_OrphansOfOneThatIsBack(t *testing.T) {
	disk := vfs.NewCrashableMem()
	e := turning(t, disk)
	x, h := newExtent(), wire.BatchHeader{}
	must(t, e.Open(x))
	appendBatch(t, e, x, nextBatch(t, &h, 100))
	orphan := nextBatch(t, &h, 100)
	appendBatch(t, e, x, orphan)
	must(t, removeTold(e, x, 1))
	_, err := e.Fence(x, 2)
	must(t, err)
	h = wire.BatchHeader{}
	for range 2 {
		_, err := e.Copy(x.ID, recordsBatch(t, &h, 3, 10))
		must(t, err)
	}
	must(t, e.db.Set(batchKey(x.ID, 2), orphan, pebble.NoSync))
	must(t, e.db.Flush())
	e = turning(t, disk.CrashClone(vfs.CrashCloneCfg{}))
	drainAll(t, e)
	if v, err := e.Verify(t.Context(), x.ID); err != nil || !v.Sound {
		t.Errorf("what came back is %+v, %v", v, err)
	}
}

// flipIn changes a bit of a value in a table.
func flipIn(t *testing.T, disk vfs.FS, value []byte) {
	t.Helper()
	names, err := disk.List("store/log")
	must(t, err)
	for _, name := range names {
		if path.Ext(name) != ".sst" {
			continue
		}
		f, err := disk.OpenReadWrite(disk.PathJoin("store/log", name), vfs.WriteCategoryUnspecified)
		must(t, err)
		defer f.Close()
		info, err := f.Stat()
		must(t, err)
		if info.Size() == 0 { // it is being made
			continue
		}
		b := make([]byte, info.Size())
		_, err = f.ReadAt(b, 0)
		must(t, err)
		if at := bytes.Index(b, value); at >= 0 {
			_, err := f.WriteAt([]byte{b[at] ^ 1}, int64(at))
			must(t, err)
			return
		}
	}
	t.Fatal("the value is in no table")
}
