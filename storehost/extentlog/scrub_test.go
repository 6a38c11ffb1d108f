package extentlog

import (
	"bytes"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// fillSealed makes n sealed extents of a few large batches, and closes the log so that they lie in tables.
func fillSealed(t *testing.T, disk vfs.FS, n int) []core.ExtentID {
	t.Helper()
	e, err := Open("store", Options{Store: "s1", FS: disk})
	if err != nil {
		t.Fatal(err)
	}
	var ids []core.ExtentID
	for range n {
		x := newExtent()
		ids = append(ids, x.ID)
		var h wire.BatchHeader
		if err := e.Open(x); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			answer := make(chan error, 1)
			e.Append(x.ID, nextBatch(t, &h, 100<<10), 0, func(_ core.Seq, err error) { answer <- err })
			if err := <-answer; err != nil {
				t.Fatal(err)
			}
		}
		if _, err := e.Fence(x, 0); err != nil {
			t.Fatal(err)
		}
		if err := e.Seal(x.ID, h.Last(), h.Checksum, 0); err != nil {
			t.Fatal(err)
		}
	}
	drainAll(t, e)
	must(t, e.Close())
	return ids
}

// flip changes a bit inside the batches of an extent, wherever they lie.
func flip(t *testing.T, disk vfs.FS, id core.ExtentID) {
	t.Helper()
	names, err := disk.List("store/log")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if disk.PathBase(name) == "LOCK" {
			continue
		}
		name = disk.PathJoin("store/log", name)
		f, err := disk.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		at := bytes.Index(b, batchKey(id, 3))
		if at < 0 || len(name) < 4 || name[len(name)-4:] != ".sst" {
			continue
		}
		b[at+1000] ^= 1
		w, err := disk.Create(name, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(b); err != nil {
			t.Fatal(err)
		}
		w.Close()
		return
	}
	t.Fatal("the extent is in no table")
}

func TestScrub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		ids := fillSealed(t, disk, 3)
		flip(t, disk, ids[1])
		const rate = 1 << 20
		e, err := Open("store", Options{Store: "s1", FS: disk, ScrubRate: rate})
		if err != nil {
			t.Fatal(err)
		}
		before := e.Inventory(InventoryQuery{Most: 10})
		time.Sleep(scrubDelay - time.Second)
		if v := e.Vitals(); v.ScrubbedBytes != 0 {
			t.Fatalf("%d bytes are verified too early", v.ScrubbedBytes)
		}
		time.Sleep(2 * time.Second)
		if v := e.Vitals(); v.ScrubbedBytes == 0 || v.ScrubbedBytes > 2*rate {
			t.Fatalf("%d bytes are verified after a second, at a rate of %d", v.ScrubbedBytes, rate)
		}
		time.Sleep(time.Minute)
		v := e.Vitals()
		if v.DamagedExtents != 1 || v.Quarantined != 1 || v.ScrubbedBytes < 2*500<<10 {
			t.Fatalf("one of three is damaged, the log says %+v", v)
		}
		news := e.Inventory(InventoryQuery{After: before.Position, Most: 10})
		if len(news.Replicas) == 0 || news.Replicas[0].Extent.ID != ids[1] || !news.Replicas[0].Damaged || news.Digests == before.Digests {
			t.Fatalf("the inventory does not tell the damage: %+v", news.Replicas)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if e, err = Open("store", Options{Store: "s1", FS: disk}); err != nil {
			t.Fatal(err)
		}
		for i, id := range ids {
			if s, err := e.State(id); err != nil || s.Damaged != (i == 1) {
				t.Fatalf("after a restart, extent %d: %+v, %v", i, s, err)
			}
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
