package enginefs_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/columbamq/columba/storehost/extentlog"
	"github.com/columbamq/columba/storehost/extentlog/extentlogtest"
)

// A fresh log has blocks on disk ahead of its end, and its end is still found.
func TestZeroed_IsZeroedAhead(t *testing.T) {
	dir := t.TempDir()
	open := func() *extentlog.Engine {
		l, err := extentlog.Open(dir, extentlog.Options{Store: "s1"})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := open()
	e, w := extentlogtest.Extent(), new(extentlogtest.Writer)
	if err := l.Open(e); err != nil {
		t.Fatal(err)
	}
	const batches, size = 200, 1000
	for range batches {
		if _, err := extentlogtest.Append(l, e.ID, w.Batch(1, size), 0); err != nil {
			t.Fatal(err)
		}
	}
	logs, err := filepath.Glob(filepath.Join(dir, "log", "*.log"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("logs %v, %v; want one", logs, err)
	}
	info, err := os.Stat(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	if least := int64(batches*size + 8<<10); info.Size() < least {
		t.Errorf("%s has %d bytes, want at least %d: nothing is zeroed behind what was written", logs[0], info.Size(), least)
	}
	crashed, err := os.ReadFile(logs[0]) // Close would end it properly
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(logs[0], crashed, 0o644); err != nil {
		t.Fatal(err)
	}
	l = open()
	defer l.Close()
	s, err := l.State(e.ID)
	if err != nil || s.Last != batches {
		t.Errorf("after a crash it ends at %d, %v; want %d", s.Last, err, batches)
	}
}
