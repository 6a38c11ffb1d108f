package enginefs

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestGate_NothingChangesOnceItIsShut: not by handles that were open before, either; what is there can be read.
func TestGate_NothingChangesOnceItIsShut(t *testing.T) {
	gate := new(Gate)
	mem := vfs.NewMem()
	fs := New(mem, Options{Gate: gate, Failing: func() bool { return false }, Taken: func() int64 { return 0 }, Hurry: func() bool { return false }})
	files := make(map[string]vfs.File)
	for _, name := range []string{"a.log", "b.sst", "MANIFEST"} {
		f, err := fs.Create(name, "test")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte("before")); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		files[name] = f
	}
	read, err := fs.Open("a.log")
	if err != nil {
		t.Fatal(err)
	}
	if !gate.Sever(time.Second) {
		t.Fatal("not severed, with nothing under way")
	}
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, ErrSevered) {
			t.Errorf("%s: got %v, want %v", what, err, ErrSevered)
		}
	}
	for name, f := range files {
		_, err := f.Write([]byte("after"))
		refused("write "+name, err)
		_, err = f.WriteAt([]byte("after"), 0)
		refused("write at "+name, err)
		refused("sync "+name, f.Sync())
		refused("sync data "+name, f.SyncData())
		_, err = f.SyncTo(1)
		refused("sync to "+name, err)
		refused("preallocate "+name, f.Preallocate(0, 100))
	}
	_, err = fs.Create("new", "test")
	refused("create", err)
	_, err = fs.OpenReadWrite("a.log", "test")
	refused("open for writing", err)
	_, err = fs.ReuseForWrite("a.log", "c.log", "test")
	refused("use again", err)
	refused("remove", fs.Remove("a.log"))
	refused("remove all", fs.RemoveAll("."))
	refused("rename", fs.Rename("a.log", "c.log"))
	refused("link", fs.Link("a.log", "c.log"))
	refused("make a directory", fs.MkdirAll("dir", 0o755))
	names, err := mem.List("")
	if err != nil || len(names) != len(files) {
		t.Errorf("files: %v, %v, want the %d of before", names, err, len(files))
	}
	b := make([]byte, 6)
	if _, err := io.ReadFull(read, b); err != nil || string(b) != "before" {
		t.Errorf("read: %q, %v", b, err)
	}
}

// TestGate_WaitsForWhatIsUnderWay for so long, and shuts behind it.
func TestGate_WaitsForWhatIsUnderWay(t *testing.T) {
	gate := new(Gate)
	if err := gate.enter(); err != nil {
		t.Fatal(err)
	}
	if gate.Sever(time.Millisecond) {
		t.Fatal("severed while a change is under way")
	}
	if gate.enter() == nil {
		t.Fatal("a change begins behind one that hangs")
	}
	gate.leave()
	if !gate.Sever(10*time.Second) || gate.enter() == nil {
		t.Error("not severed afterwards")
	}
}
