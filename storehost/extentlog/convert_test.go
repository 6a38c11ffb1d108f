package extentlog

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// firstVersion makes a directory of version 1, with a sealed extent of some batches, which are in the database's own
// log.
func firstVersion(t *testing.T, disk vfs.FS) (x core.Extent, want []byte) {
	t.Helper()
	must(t, disk.MkdirAll("store/log", 0o755))
	db, err := pebble.Open("store/log", &pebble.Options{FS: disk, FormatMajorVersion: pebble.FormatNewest, Logger: pebbleLog{&Engine{log: slog.New(slog.DiscardHandler)}}})
	must(t, err)
	set := func(key, value []byte) { must(t, db.Set(key, value, pebble.Sync)) }
	disc := core.NewID(time.Now())
	set(keyFormat, []byte{1})
	set(keyIdentity, append(disc[:], "s1"...))
	x = newExtent()
	var h wire.BatchHeader
	for range 5 {
		b := nextBatch(t, &h, 1000)
		set(batchKey(x.ID, h.Base), b)
		want = append(want, b...)
	}
	at := make([]byte, positionLen)
	position{last: h.Last(), bytes: uint64(len(want)), checksum: h.Checksum}.put(at)
	set(extentKey(prefixPosition, x.ID), at)
	value, err := row{Extent: x, Opened: true, Fenced: true, Sealed: true, L: h.Last(), SealSum: h.Checksum, Version: 3}.encode()
	must(t, err)
	set(extentKey(prefixRow, x.ID), value)
	must(t, db.Close())
	for _, name := range []string{"/", "store", "store/log"} {
		d, err := disk.OpenDir(name)
		must(t, err)
		must(t, errors.Join(d.Sync(), d.Close()))
	}
	return x, want
}

// expect looks whether a directory has what firstVersion put there, and is of this version.
func expect(t *testing.T, disk vfs.FS, x core.Extent, want []byte, when string) {
	t.Helper()
	e, err := Open("store", Options{Store: "s1", FS: disk, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	defer e.Close()
	s, err := e.State(x.ID)
	if err != nil || !s.Sealed || s.L != s.Last || s.Version != 3 {
		t.Fatalf("%s: %+v, %v", when, s, err)
	}
	if got, err := e.Read(x.ID, 1, s.Last, 1<<20); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%s: %d bytes, %v; want %d", when, len(got), err, len(want))
	}
	if format, err := e.meta(keyFormat); err != nil || format[0] != FormatVersion {
		t.Fatalf("%s: version %v, %v", when, format, err)
	}
}

// TestOpen_ConvertsVersion1, also when the power fails before any sync of that.
func TestOpen_ConvertsVersion1(t *testing.T) {
	disk := vfs.NewCrashableMem()
	x, want := firstVersion(t, disk)
	var mu sync.Mutex
	var crashes []*vfs.MemFS
	var recording atomic.Bool
	recording.Store(true)
	random := rand.New(rand.NewPCG(1, 2))
	recorded := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			if recording.Load() {
				mu.Lock()
				defer mu.Unlock()
				crashes = append(crashes, disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100 * (len(crashes) % 2), RNG: random}))
			}
		}
		return nil
	}))
	expect(t, recorded, x, want, "converted")
	recording.Store(false)
	if len(crashes) < 5 {
		t.Fatalf("only %d syncs", len(crashes))
	}
	for i, fs := range crashes {
		expect(t, fs, x, want, fmt.Sprintf("after crash %d of %d", i, len(crashes)))
	}
	expect(t, disk, x, want, "opened again")
}
