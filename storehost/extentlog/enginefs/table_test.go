package enginefs

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// writeTable writes a file as Pebble writes one, and answers how long it took. meanwhile is called after each block.
func writeTable(t *testing.T, fs *FS, name string, category vfs.DiskWriteCategory, size int, meanwhile func(block int)) time.Duration {
	t.Helper()
	f, err := fs.Create(name, category)
	if err != nil {
		t.Fatal(err)
	}
	began, block := time.Now(), make([]byte, 32<<10)
	for range size / len(block) {
		if _, err := f.Write(block); err != nil {
			t.Fatal(err)
		}
		meanwhile(len(block))
	}
	took := time.Since(began)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if info, err := fs.Stat(name); err != nil || info.Size() != int64(size) {
		t.Errorf("%s has %v bytes, %v; want %d", name, info.Size(), err, size)
	}
	return took
}

// A table takes its time while appends leave it some, none when they need the next memtable soon, and none when the
// store closes.
func TestTable_IsPaced(t *testing.T) {
	const size = 16 << 20
	for _, c := range []struct {
		name        string
		file        string
		category    vfs.DiskWriteCategory
		taken       int64 // by the log, for each byte of the table, in percent
		closed      bool
		hurry       bool
		least, most time.Duration
	}{
		{"an idle log", "000001.sst", Paced, 0, false, false, 200 * time.Millisecond, 400 * time.Millisecond},
		{"a log that takes a third", "000001.sst", Paced, 33, false, false, 200 * time.Millisecond, 400 * time.Millisecond},
		{"a log that takes as much", "000001.sst", Paced, 100, false, false, 0, 5 * time.Millisecond},
		{"a store that closes", "000001.sst", Paced, 0, true, false, 0, 0},
		{"somebody waits", "000001.sst", Paced, 0, false, true, 0, 0},
		{"a compaction", "000001.sst", "pebble-compaction", 0, false, false, 0, 0},
		{"a write-ahead log", "000001.log", "", 0, false, false, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var taken atomic.Int64
				stop := make(chan struct{})
				if c.closed {
					close(stop)
				}
				took := writeTable(t, New(vfs.NewMem(), Options{Taken: taken.Load, Failing: func() bool { return false }, Hurry: func() bool { return c.hurry }, Stop: stop}), c.file, c.category, size, func(block int) { taken.Add(int64(block) * c.taken / 100) })
				if took < c.least || took > c.most {
					t.Errorf("%d MiB took %s, want %s to %s", size>>20, took, c.least, c.most)
				}
			})
		})
	}
}
