package pebble

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
)

// fullDisk has no room left.
type fullDisk struct{ vfs.FS }

func (fullDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: startRoom - 1, TotalBytes: 1 << 30, UsedBytes: 1<<30 - startRoom + 1}, nil
}

// A store whose disk is full says so at once; the engine would wait in silence.
func TestOpen_FullDisk(t *testing.T) {
	s, err := open(fullDisk{vfs.Default}, t.TempDir(), 0, nil)
	if core.CodeOf(err) != core.CodeNoSpace {
		t.Errorf("open on a full disk: %v, want no_space", err)
	}
	if s != nil {
		t.Error("a store was opened", s.Close())
	}
}
