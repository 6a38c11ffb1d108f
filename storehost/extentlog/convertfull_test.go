package extentlog

import (
	"bytes"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// formatOn is the version that an earlier build finds in a directory: read from a copy, with what is synced.
func formatOn(t *testing.T, disk *vfs.MemFS) []byte {
	t.Helper()
	db, err := pebble.Open("store/log", &pebble.Options{FS: disk.CrashClone(vfs.CrashCloneCfg{}), FormatMajorVersion: pebble.FormatNewest, Logger: pebbleLog{&Engine{log: slog.New(slog.DiscardHandler)}}})
	must(t, err)
	defer db.Close()
	value, closer, err := db.Get(keyFormat)
	must(t, err)
	defer closer.Close()
	return bytes.Clone(value)
}

// TestOpen_ConvertsVersion1OnceThereIsRoom: a directory of version 1 that is opened on a full disk is only read, and
// not changed at all. It is converted when there is room, before the ring takes anything.
func TestOpen_ConvertsVersion1OnceThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := vfs.NewCrashableMem()
		x, want := firstVersion(t, memory)
		before, err := memory.List("store/log")
		must(t, err)
		disk := newQuota(1 << 30)
		disk.FS = memory
		disk.leave(0)
		e := newEngine(t, "store", disk)
		read := func(when string) {
			t.Helper()
			if got, err := e.Read(x.ID, 1, 5, 1<<20); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %d bytes, %v; want %d", when, len(got), err, len(want))
			}
		}
		read("on a full disk")
		if err := e.Open(newExtent()); core.CodeOf(err) != core.CodeNoSpace {
			t.Errorf("open on a full disk: %v, want %q", err, core.CodeNoSpace)
		}
		time.Sleep(5 * time.Second)
		if after, err := memory.List("store/log"); err != nil || len(after) != len(before) || disk.used != 0 {
			t.Errorf("on a full disk %d bytes were written, files %v; want %v", disk.used, after, before)
		}
		if _, err := memory.Stat("store/ring"); err == nil {
			t.Error("a ring was made on a full disk")
		}
		if format := formatOn(t, memory); !bytes.Equal(format, []byte{1}) {
			t.Errorf("version %v on a full disk, want 1", format)
		}
		disk.leave(1 << 29)
		time.Sleep(3 * time.Second)
		read("with room")
		y, h := newExtent(), wire.BatchHeader{}
		must(t, e.Open(y))
		must(t, appendWithin(t, e, y, nextBatch(t, &h, 1000), 5*time.Second))
		if format := formatOn(t, memory); !bytes.Equal(format, []byte{FormatVersion}) {
			t.Errorf("version %v while the ring is used, want %d", format, FormatVersion)
		}
		crashed := memory.CrashClone(vfs.CrashCloneCfg{})
		e = newEngine(t, "store", crashed)
		read("after a power cut")
		if v, err := e.Verify(t.Context(), y.ID); err != nil || !v.Sound {
			t.Errorf("what was appended: %+v, %v", v, err)
		}
	})
}
