package extentlog

import (
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
)

// Watermarks in percent of the disk. A full disk makes Pebble hang instead of failing, so appends must stop before.
const (
	refuseOpenAt   = 95
	refuseAppendAt = 97
)

// space is how full the disk was when last looked at.
type space struct {
	used        atomic.Int64 // percent
	free, total atomic.Uint64
}

// look reads the disk's fill; it reports whether a watermark was passed, either way. A file system that cannot say counts as empty.
func (s *space) look(fs vfs.FS, dir string) (passed bool) {
	usage, err := fs.GetDiskUsage(dir)
	if err != nil || usage.UsedBytes+usage.AvailBytes == 0 {
		return false
	}
	s.free.Store(usage.AvailBytes)
	s.total.Store(usage.TotalBytes)
	now := int64(float64(usage.UsedBytes) / float64(usage.UsedBytes+usage.AvailBytes) * 100)
	was := s.used.Swap(now)
	return (was >= refuseOpenAt) != (now >= refuseOpenAt) || (was >= refuseAppendAt) != (now >= refuseAppendAt)
}

func (s *space) refuseOpen() error {
	if used := s.used.Load(); used >= refuseOpenAt {
		return core.Errorf(core.CodeNoSpace, "the store's disk is %d%% full and takes no new extents; free some space", used)
	}
	return nil
}

func (s *space) refuseAppend() error {
	if used := s.used.Load(); used >= refuseAppendAt {
		return core.Errorf(core.CodeNoSpace, "the store's disk is %d%% full and takes no more; free some space", used)
	}
	return nil
}
