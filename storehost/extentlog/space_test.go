package extentlog

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
)

// fixedDisk says the same of itself whatever is written.
type fixedDisk struct {
	vfs.FS
	total, free uint64
}

func (d fixedDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{TotalBytes: d.total, AvailBytes: d.free, UsedBytes: d.total - d.free}, nil
}

func TestSpace_ChargesWhatIsTaken(t *testing.T) {
	var s space
	want := func(when string, open, appending core.Code) {
		t.Helper()
		if code := core.CodeOf(s.refuseOpen()); code != open {
			t.Errorf("%s: open %q, want %q", when, code, open)
		}
		if code := core.CodeOf(s.refuseAppend(1 << 20)); code != appending {
			t.Errorf("%s: append %q, want %q", when, code, appending)
		}
	}
	disk := fixedDisk{total: 1 << 30, free: 300 << 20}
	s.look(disk, "")
	want("above twice the reserve", "", "")
	s.take(20 << 20)
	want("below twice the reserve", core.CodeNoSpace, "")
	s.take(40 << 20)
	want("below the reserve", core.CodeNoSpace, core.CodeNoSpace)
	s.look(disk, "")
	want("it is there, and space is left", "", "")
	if code := core.CodeOf(s.refuseAppend(60 << 20)); code != core.CodeNoSpace {
		t.Errorf("a batch that needs the reserve: %q, want %q", code, core.CodeNoSpace)
	}
	disk.total, disk.free = 1<<40, 1<<40/25
	s.look(disk, "")
	want("96 % of a large disk", core.CodeNoSpace, "")
	disk.free = 1 << 40 / 50
	s.look(disk, "")
	want("98 % of a large disk", core.CodeNoSpace, core.CodeNoSpace)
}

func TestSpace_UnknownIsEmpty(t *testing.T) {
	var s space
	s.look(vfs.NewMem(), "")
	s.take(1 << 40)
	if err := s.refuseOpen(); err != nil {
		t.Error(err)
	}
	if err := s.refuseAppend(1 << 40); err != nil {
		t.Error(err)
	}
}

// TestFill_ReserveCoversTheDatabase: what it may write by itself fits into the reserve.
func TestFill_ReserveCoversTheDatabase(t *testing.T) {
	for _, total := range []int64{64 << 20, 1 << 30, 2 << 30, 1 << 40} {
		f := fill{total: total}
		memtable := int64(f.memtable())
		// Four memtables become tables, the next log is allocated at a tenth more, two groups are on their way twice.
		if need := 4*memtable + memtable*11/10 + 2*2*memtable/2; f.reserve() < need {
			t.Errorf("disk of %d MiB: reserve %d MiB, need %d", total>>20, f.reserve()>>20, need>>20)
		}
	}
}
