package extentlog_test

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog"
	"github.com/columbamq/columba/storehost/extentlog/extentlogtest"
)

func options(store core.HostID, fs vfs.FS) extentlog.Options {
	return extentlog.Options{Store: store, FS: fs, Log: slog.New(slog.DiscardHandler)}
}

func wantOpenCode(t *testing.T, dir string, o extentlog.Options, code core.Code) {
	t.Helper()
	e, err := extentlog.Open(dir, o)
	if err == nil {
		e.Close()
	}
	if core.CodeOf(err) != code {
		t.Fatalf("open %s: got %v (%q), want %q", dir, err, core.CodeOf(err), code)
	}
}

func closeEngine(t *testing.T, e *extentlog.Engine) {
	t.Helper()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOpen_MissingParent(t *testing.T) {
	wantOpenCode(t, filepath.Join(t.TempDir(), "no", "store"), options("s1", nil), core.CodeNotFound)
}

func TestOpen_File(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	wantOpenCode(t, name, options("s1", nil), core.CodeBadArgument)
}

func TestOpen_SecondOnDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	e, err := extentlog.Open(dir, options("s1", nil))
	if err != nil {
		t.Fatal(err)
	}
	wantOpenCode(t, dir, options("s1", nil), core.CodeLocked)
	closeEngine(t, e)
	wantOpenCode(t, dir, options("s1", nil), "")
}

func TestOpen_OtherStore(t *testing.T) {
	disk := vfs.NewMem()
	wantOpenCode(t, extentlogtest.Dir, options("", disk), core.CodeBadArgument)
	wantOpenCode(t, extentlogtest.Dir, options("s1", disk), "")
	wantOpenCode(t, extentlogtest.Dir, options("s2", disk), core.CodeConflict)
	wantOpenCode(t, extentlogtest.Dir, options("", disk), "")
}

func TestOpen_ReadOnly(t *testing.T) {
	disk := vfs.NewMem()
	wantOpenCode(t, extentlogtest.Dir, options("s1", disk), "")
	refuse := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return &fs.PathError{Op: "write", Path: op.Path, Err: fs.ErrPermission}
		}
		return nil
	})
	wantOpenCode(t, extentlogtest.Dir, options("s1", errorfs.Wrap(disk, refuse)), core.CodeReadOnly)
	wantOpenCode(t, extentlogtest.Dir, options("s1", disk), "")
}

func TestOpen_FileTakenAway(t *testing.T) {
	disk := vfs.NewMem()
	wantOpenCode(t, extentlogtest.Dir, options("s1", disk), "")
	names, err := disk.List(tables)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, "MANIFEST") {
			if err := disk.Remove(tables + "/" + name); err != nil {
				t.Fatal(err)
			}
		}
	}
	wantOpenCode(t, extentlogtest.Dir, options("s1", disk), "")
}

// TestOpen_MakingCutShort finds what a power cut left while the store was being made.
func TestOpen_MakingCutShort(t *testing.T) {
	disk := vfs.NewMem()
	if err := disk.MkdirAll(tables+".new/half", 0o755); err != nil {
		t.Fatal(err)
	}
	wantOpenCode(t, extentlogtest.Dir, options("s1", disk), "")
}

func TestOpen_NewerFormat(t *testing.T) {
	disk := vfs.NewMem()
	wantOpenCode(t, extentlogtest.Dir, options("s1", disk), "")
	db, err := pebble.Open(tables, &pebble.Options{FS: disk, FormatMajorVersion: pebble.FormatNewest, Logger: quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Set([]byte("mf"), []byte{extentlog.FormatVersion + 1}, pebble.Sync), db.Close()); err != nil {
		t.Fatal(err)
	}
	wantOpenCode(t, extentlogtest.Dir, options("s1", disk), core.CodeNewerFormat)
}

func TestEngine_FullDisk(t *testing.T) {
	disk := &filling{FS: vfs.NewMem()}
	disk.used = 96
	l, err := extentlog.Open(extentlogtest.Dir, options("s1", disk))
	if err != nil {
		t.Fatal(err)
	}
	if code := core.CodeOf(l.Open(extentlogtest.Extent())); code != core.CodeNoSpace {
		t.Fatalf("open on a disk that is 96%% full: %q, want %q", code, core.CodeNoSpace)
	}
	closeEngine(t, l)
	disk.used = 50
	if l, err = extentlog.Open(extentlogtest.Dir, options("s1", disk)); err != nil {
		t.Fatal(err)
	}
	e := extentlogtest.Extent()
	if err := l.Open(e); err != nil {
		t.Fatal(err)
	}
	closeEngine(t, l)
	disk.used = 98
	if l, err = extentlog.Open(extentlogtest.Dir, options("s1", disk)); err != nil {
		t.Fatal(err)
	}
	defer closeEngine(t, l)
	if _, err = extentlogtest.Append(l, e.ID, new(extentlogtest.Writer).Batch(1, 1), 0); core.CodeOf(err) != core.CodeNoSpace {
		t.Fatalf("append on a disk that is 98%% full: %v, want %q", err, core.CodeNoSpace)
	}
	if _, err := l.Fence(e, 0); err != nil {
		t.Fatalf("fence on a full disk: %v", err)
	}
	if err := extentlogtest.Remove(l, e, 1); err != nil {
		t.Fatalf("remove on a full disk: %v", err)
	}
}

// filling is a disk of a TiB, used by so many percent.
type filling struct {
	vfs.FS
	used uint64
}

func (f *filling) GetDiskUsage(string) (vfs.DiskUsage, error) {
	const percent = 1 << 40 / 100
	return vfs.DiskUsage{TotalBytes: 100 * percent, UsedBytes: f.used * percent, AvailBytes: (100 - f.used) * percent}, nil
}

// quiet keeps Pebble's words out of the test's output.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

func TestOpen_NoRoom(t *testing.T) {
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
				return full
			}
			return nil
		}))
		if _, err := extentlog.Open("store", options("a", disk)); core.CodeOf(err) != core.CodeNoSpace {
			t.Errorf("%v: %v, want no space", full, err)
		}
	}
}
