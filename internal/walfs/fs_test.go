package walfs

import (
	"errors"
	"runtime"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// faulty is a file system that fails the operations of one kind.
func faulty(kind errorfs.OpKind, fail func() error) vfs.FS {
	return errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind != kind {
			return nil
		}
		return fail()
	}))
}

// ends reports whether a call of the engine's ends its goroutine, instead of returning to an engine that would panic.
func ends(call func()) bool {
	returned := make(chan bool, 1)
	go func() {
		back := false
		defer func() { returned <- back }()
		call()
		back = true
	}()
	return !<-returned
}

// An error of a sync goes back to the engine's own goroutine, which waits for it; it is told before. The engine never
// gets to know that the log could not be closed for the next one, however the sync failed that ends it.
func TestLog_IsNotEndedAfterAnError(t *testing.T) {
	told, ending := 0, false
	fs := New(faulty(errorfs.OpFileSyncData, func() error { return syscall.EIO }), func(err error) bool {
		if told++; !errors.Is(err, syscall.EIO) {
			t.Errorf("told %v, want %v", err, syscall.EIO)
		}
		if ending {
			runtime.Goexit() // for the wait without end
		}
		return true
	})
	f, err := fs.Create("000001.log", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.SyncData(); !errors.Is(err, syscall.EIO) || told != 1 {
		t.Fatalf("sync: %v, told %d times; want the disk's error, told once", err, told)
	}
	ending = true
	for what, call := range map[string]func(){
		"close": func() { _ = f.Close() }, "sync": func() { _ = f.Sync() }, "write": func() { _, _ = f.Write([]byte("x")) },
	} {
		if !ends(call) {
			t.Errorf("%s after the failure returns to the engine", what)
		}
	}
}

// An engine that is being opened or closed takes errors.
func TestLog_ReturnsErrorsWhileNotInUse(t *testing.T) {
	fs := New(faulty(errorfs.OpFileSyncData, func() error { return syscall.EIO }), func(error) bool { return false })
	f, err := fs.Create("000001.log", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.SyncData(); !errors.Is(err, syscall.EIO) {
		t.Errorf("sync: %v, want %v", err, syscall.EIO)
	}
	if err := f.Close(); !errors.Is(err, syscall.EIO) {
		t.Errorf("close: %v, want %v", err, syscall.EIO)
	}
}

// A shortage of descriptors passes, and the log waits for that.
func TestFS_WaitsForDescriptors(t *testing.T) {
	for _, c := range []struct {
		shortage time.Duration
		lost     bool
	}{{shortage / 2, false}, {2 * shortage, true}} {
		synctest.Test(t, func(t *testing.T) {
			began, lost := time.Now(), false
			fs := New(faulty(errorfs.OpCreate, func() error {
				if time.Since(began) < c.shortage {
					return syscall.EMFILE
				}
				return nil
			}), func(error) bool { lost = true; return false })
			f, err := fs.Create("000001.log", vfs.WriteCategoryUnspecified)
			if lost != c.lost || (err != nil) != c.lost {
				t.Fatalf("%s without descriptors: %v, lost %v; want lost %v", c.shortage, err, lost, c.lost)
			}
			if err == nil {
				_ = f.Close()
			}
		})
	}
}
