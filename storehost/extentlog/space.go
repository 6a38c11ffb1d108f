package extentlog

import (
	"math"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
)

// A full disk makes Pebble hang instead of failing, so appends must stop before: at watermarks in percent of the disk,
// and where less is left than the database may still come to need by itself (four memtables, the next log, what is on
// its way), with which extents are also fenced, sealed and removed.
const (
	refuseOpenAt   = 95
	refuseAppendAt = 97
	maxReserve     = 512 << 20
	reserveShare   = 8 // one in so many bytes, of a small disk; no extent is opened below twice the reserve
	// writtenTimes is how often a byte that is taken reaches the disk: in the log and in a table, and some for what is
	// around it.
	writtenTimes = 3
	lookAgain    = 1 << 20 // bytes taken after a look that make it worth another; less on a small disk
	lookShare    = 64      // one in so many bytes of it
)

// Memtables of a disk: its reserve is 16 of them.
const (
	minMemtable   = 1 << 20
	maxMemtable   = 16 << 20
	memtableShare = 128
)

// Tables of a disk, each of which takes a block at least.
const (
	minTables  = 64
	maxTables  = 2000
	tableShare = 128 * 4 << 10
)

// space is how full the disk was when last looked at, and what was taken since. A file system that cannot say counts as
// empty.
type space struct {
	taken atomic.Int64 // bytes ever given to the database
	owed  func() int64 // bytes that the database is still to get, nil: none
	seen  atomic.Pointer[fill]
}

// fill of a disk.
type fill struct {
	free, total int64
	used        int64 // percent
	taken       int64 // by then
}

// look measures how full the disk is. Accepted bytes may not all be on it yet; the reserve covers them.
func (s *space) look(fs vfs.FS, dir string) {
	taken := s.taken.Load()
	usage, err := fs.GetDiskUsage(dir)
	if err != nil || usage.UsedBytes+usage.AvailBytes == 0 {
		return
	}
	s.seen.Store(&fill{
		free: int64(usage.AvailBytes), total: int64(usage.TotalBytes), taken: taken,
		used: int64(float64(usage.UsedBytes) / float64(usage.UsedBytes+usage.AvailBytes) * 100),
	})
}

// fill is zero when the file system cannot say.
func (s *space) fill() fill {
	if f := s.seen.Load(); f != nil {
		return *f
	}
	return fill{}
}

func (f fill) reserve() int64 { return min(maxReserve, f.total/reserveShare) }

// memtable is the size of one on the disk.
func (f fill) memtable() int {
	if f.total == 0 {
		return maxMemtable
	}
	return int(min(max(f.total/memtableShare, minMemtable), maxMemtable))
}

// tables is how many small tables of rows there may be before they are merged: a 128th of a small disk.
// Each change of the database, as a removal is one, costs time for each of them.
func (f fill) tables() int {
	if f.total == 0 {
		return maxTables
	}
	return int(min(max(f.total/tableShare, minTables), maxTables))
}

// take charges bytes that go to the database.
func (s *space) take(bytes int) { s.taken.Add(int64(bytes)) }

// stale reports whether a look may tell much else than the last one.
func (s *space) stale() bool {
	f, enough := s.fill(), int64(lookAgain)
	if f.total > 0 {
		enough = min(enough, f.total/lookShare)
	}
	return s.taken.Load()-f.taken >= enough
}

func (s *space) refuseOpen() error {
	if f, free := s.left(0); f.used >= refuseOpenAt || free < 2*f.reserve() {
		return core.Errorf(core.CodeNoSpace, "the store's disk is %d%% full with %d MiB left, and takes no new extents; free some space", f.used, f.free>>20)
	}
	return nil
}

// refuseAppend is about so many bytes more.
func (s *space) refuseAppend(more int) error {
	if f, free := s.left(more); f.used >= refuseAppendAt || free < f.reserve() {
		return core.Errorf(core.CodeNoSpace, "the store's disk is %d%% full with %d MiB left, and takes no more; free some space", f.used, f.free>>20)
	}
	return nil
}

// left is what is free once all that was taken, and more, is on the disk.
func (s *space) left(more int) (f fill, free int64) {
	if f = s.fill(); f.total == 0 {
		return f, math.MaxInt64
	}
	free = f.free - writtenTimes*(s.taken.Load()-f.taken+int64(more))
	if s.owed != nil {
		free -= s.owed()
	}
	return f, free
}

// fills reports whether it is not long until no extents are opened.
func (s *space) fills() bool {
	f, free := s.left(0)
	return free < 6*f.reserve()
}

// nearlyFull reports whether extents are about to be refused.
func (s *space) nearlyFull() bool {
	f, free := s.left(0)
	return free < 3*f.reserve()
}

// refuseSegment reports whether a file of so many bytes would come near the watermarks.
func (s *space) refuseSegment(bytes int64) bool {
	f, free := s.left(0)
	return f.total > 0 && free-bytes < 2*f.reserve()
}

// passed is how many watermarks are passed.
func (s *space) passed() int {
	switch {
	case s.refuseAppend(0) != nil:
		return 2
	case s.refuseOpen() != nil:
		return 1
	}
	return 0
}

// admitAppend refuses bytes for which there is no room, but not because of a look that is out of date.
func (e *Engine) admitAppend(bytes int) error {
	err := e.space.refuseAppend(bytes)
	if err != nil && e.space.stale() {
		e.space.look(e.fs, e.dir)
		err = e.space.refuseAppend(bytes)
	}
	return err
}

func (e *Engine) admitOpen() error {
	if err := e.lateOpening(); err != nil {
		return err
	}
	err := e.space.refuseOpen()
	if err != nil && e.space.stale() {
		e.space.look(e.fs, e.dir)
		err = e.space.refuseOpen()
	}
	return err
}

// watchSpace tells when a watermark is passed, either way.
func (e *Engine) watchSpace(was int) (now int) {
	e.space.look(e.fs, e.dir)
	if now = e.space.passed(); now != was {
		f := e.space.fill()
		e.log.Warn("disk watermark", "dir", e.dir, "used_percent", f.used, "free_bytes", f.free)
	}
	return now
}
