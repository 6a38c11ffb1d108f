package extentlog_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog"
	"github.com/columbamq/columba/storehost/extentlog/extentlogtest"
)

// smallDisk mounts a file system in memory of that size ("64m") and answers where; it needs root and Linux.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("NOT RUN: mounting a small disk needs root on Linux")
	}
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+size, "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("NOT RUN: a small disk cannot be mounted here: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

// fillUp takes all that is free on the disk.
func fillUp(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "fill"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for chunk := make([]byte, 1<<20); len(chunk) > 0; {
		if _, err := f.Write(chunk); errors.Is(err, syscall.ENOSPC) {
			chunk = chunk[:len(chunk)/2]
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func openStore(t *testing.T, dir string) *extentlog.Engine {
	t.Helper()
	l, err := extentlog.Open(dir, options("s1", nil))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestEngine_FillsASmallDisk writes as fast as it goes until the store refuses. That must be soon enough for all else
// to go on, also after a restart, and late enough for the disk to be of use.
func TestEngine_FillsASmallDisk(t *testing.T) {
	const least, batch = 24 << 20, 512 << 10
	dir := filepath.Join(smallDisk(t, "64m"), "store")
	l := openStore(t, dir)
	e, w := extentlogtest.Extent(), new(extentlogtest.Writer)
	if err := l.Open(e); err != nil {
		t.Fatal(err)
	}
	taken, refused := flood(l, e.ID, w, batch)
	if core.CodeOf(refused) != core.CodeNoSpace {
		t.Fatalf("after %d MiB: %v, want %q", taken>>20, refused, core.CodeNoSpace)
	}
	if taken < least {
		t.Errorf("refused after %d MiB, want at least %d", taken>>20, least>>20)
	}
	if code := core.CodeOf(l.Open(extentlogtest.Extent())); code != core.CodeNoSpace {
		t.Errorf("open on a full disk: %q, want %q", code, core.CodeNoSpace)
	}
	s, err := l.Fence(e, 1)
	if err != nil {
		t.Fatalf("fence on a full disk: %v", err)
	}
	closeEngine(t, l)
	l = openStore(t, dir)
	defer func() { closeEngine(t, l) }()
	if err := l.Seal(e.ID, s.Last, s.Checksum, 1); err != nil {
		t.Errorf("seal on a full disk: %v", err)
	}
	extentlogtest.ReadAll(t, l, e.ID, s.Last, 1<<20)
	if err := extentlogtest.Remove(l, e, 2); err != nil {
		t.Errorf("remove on a full disk: %v", err)
	}
}

// flood appends, some batches at once, until one is refused.
func flood(l extentlog.Log, id core.ExtentID, w *extentlogtest.Writer, size int) (taken int, refused error) {
	const depth = 3
	answers := make(chan error, depth)
	for range depth {
		answers <- nil
	}
	pending := depth
	for ; refused == nil; pending-- {
		if refused = <-answers; refused == nil {
			taken += size
			l.Append(id, w.Batch(1, size), 0, func(_ core.Seq, err error) { answers <- err })
			pending++
		}
	}
	for ; pending > 0; pending-- {
		<-answers
	}
	return taken - depth*size, refused
}

// TestOpen_FullDisk: something else has filled the disk while the store was down. Its records can be read; it accepts
// changes when it is started with room.
func TestOpen_FullDisk(t *testing.T) {
	disk := smallDisk(t, "64m")
	dir := filepath.Join(disk, "store")
	l := openStore(t, dir)
	e, w := extentlogtest.Extent(), new(extentlogtest.Writer)
	if err := l.Open(e); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if _, err := extentlogtest.Append(l, e.ID, w.Batch(1, 256<<10), 0); err != nil {
			t.Fatal(err)
		}
	}
	closeEngine(t, l)
	fillUp(t, disk)
	l = openStore(t, dir)
	extentlogtest.ReadAll(t, l, e.ID, w.Last, 1<<20)
	_, fence := l.Fence(e, 1)
	_, appended := extentlogtest.Append(l, e.ID, w.Batch(1, 1), 0)
	for what, err := range map[string]error{"fence": fence, "append": appended, "open": l.Open(extentlogtest.Extent()), "remove": l.Remove(e.ID, 2)} {
		if core.CodeOf(err) != core.CodeNoSpace {
			t.Errorf("%s: %v, want %q", what, err, core.CodeNoSpace)
		}
	}
	closeEngine(t, l)
	wantOpenCode(t, filepath.Join(disk, "another"), options("s1", nil), core.CodeNoSpace)
	if err := os.Remove(filepath.Join(disk, "fill")); err != nil {
		t.Fatal(err)
	}
	l = openStore(t, dir)
	defer closeEngine(t, l)
	if s, err := l.Fence(e, 1); err != nil || s.Last != w.Last-1 {
		t.Errorf("fence with room: last %d, %v; want %d", s.Last, err, w.Last-1)
	}
	if err := extentlogtest.Remove(l, e, 2); err != nil {
		t.Errorf("remove with room: %v", err)
	}
}
