package extentlog

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog/ring"
)

// Bounds of the ring and of its segments.
const (
	firstSegment = 256 << 10 // of a new store, which writes little
	leastSegment = 16 << 10
	roomySegment = 1 << 20
	mostSegment  = 64 << 20
	segments     = 16 // of the most bytes that a ring may have, and some smaller ones from when it grew
	// A log that may have few tables open has a ring of few files.
	fewTables   = 64
	fewSegments = 4
	fewRing     = 64 << 20
	// segmentFiles is how many files a ring has open that is as large as it may be, but for odd ones.
	segmentFiles = segments + 8
	ringShare    = 20 // one in so many bytes of the disk, at most
	defaultRing  = 256 << 20
	// freeShare is the part of the ring that is kept free: one in so many bytes. As much is drained at once.
	freeShare = 4
	// growShare is the part while the ring grows: appends are not to wait for the next segment, which is as large as all
	// those before.
	growShare = 2
	// shortShare is the part from which on somebody soon waits for a drain.
	shortShare = 8
	// maxHeld bounds the memory of what is known of batches in the ring: 24 bytes each, 64 MiB.
	maxHeld = 64 << 20 / 24
	// keepAgain is the pause after the ring could not be kept free.
	keepAgain = 200 * time.Millisecond
)

// keeper makes segments, and drains them when there can be no more. It is a goroutine of its own; what commitLoop and
// settleLoop tell it is guarded.
type keeper struct {
	most    int64           // bytes of the ring
	parts   int64           // segments of it
	free    atomic.Int64    // one in so many of them is kept free
	wake    chan struct{}   // capacity 1
	made    chan struct{}   // capacity 1: there may be a free segment
	wanted  atomic.Int64    // bytes of the group for which no segment is free; 0: none
	short   atomic.Bool     // somebody soon waits for a drain
	garbage atomic.Int64    // bytes of dead records that tables with live ones may have
	sparse  atomic.Int64    // tables with at most so many percent of live bytes are repacked
	looks   atomic.Bool     // tables to repack are to be looked for
	dead    atomic.Int64    // bytes of these records, when tables were looked for last
	flushed uint64          // serial of the last segment whose rows are, or soon will be, in tables
	flush   <-chan struct{} // closed when the flush that began last is over; nil: none did
	batches atomic.Int64    // that are held
	bytes   atomic.Int64    // of them
	drained atomic.Uint64   // bytes of batches that were drained
	moved   atomic.Uint64   // bytes of batches that were moved to other tables
	dropped atomic.Uint64   // … and of those that needed no drain, since they were removed before
	waited  atomic.Int64    // nanoseconds that commitLoop waited for a segment
	mu      sync.Mutex
	tenants map[uint64]*tenants // by the serial of a segment's use
	// removing has extents whose space is being given back, with the serial of the use that tells of their removal. That
	// one stays: after a crash a start finds in it what is to be cut out of the database.
	removing map[core.ExtentID]uint64
}

// tenants are the extents that have batches in one use of a segment.
type tenants struct {
	extents []*extent
	since   time.Time // of the first batch, or of the start
}

// limit bounds the ring, and garbage, by the size of the disk; 0: not known.
func (k *keeper) limit(disk int64) {
	if disk > 0 {
		k.most = min(k.most, disk/ringShare)
		k.garbage.Store(disk / garbageShare)
	}
	k.most = max(k.most, 4*leastSegment)
}

// segment is how large segments become: a part of the ring, with room for some batches.
func (k *keeper) segment() int64 {
	size := min(max(k.most/k.parts, min(roomySegment, k.most/4)), mostSegment)
	return max(size/leastSegment*leastSegment, leastSegment)
}

// look has the keeper look for tables to repack.
func (k *keeper) look() {
	k.looks.Store(true)
	notify(k.wake)
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// holds notes that an extent has its newest batch, of n bytes, in a segment; only commitLoop calls it, and a start.
func (k *keeper) holds(x *extent, serial uint64, n int) {
	k.batches.Add(1)
	k.bytes.Add(int64(n))
	if x.heldIn == serial {
		return
	}
	x.heldIn = serial
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.tenants[serial]
	if t == nil {
		t = &tenants{since: time.Now()}
		k.tenants[serial] = t
	}
	t.extents = append(t.extents, x)
}

// oldest is since when there are batches that are not drained; zero: there are none.
func (k *keeper) oldest() (since time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, t := range k.tenants {
		if since.IsZero() || t.since.Before(since) {
			since = t.since
		}
	}
	return since
}

// drops notes batches that are held no more, and adds their bytes to one of the sums.
func (k *keeper) drops(gone []heldBatch, sum *atomic.Uint64) {
	bytes := int64(0)
	for _, b := range gone {
		bytes += int64(b.length)
	}
	k.batches.Add(-int64(len(gone)))
	k.bytes.Add(-bytes)
	sum.Add(uint64(bytes))
}

// in are the extents that have, or had, batches in some uses of segments, each once.
func (k *keeper) in(uses []ring.Use) (all []*extent) {
	k.mu.Lock()
	defer k.mu.Unlock()
	seen := make(map[*extent]struct{})
	for _, u := range uses {
		t := k.tenants[u.Serial]
		if t == nil {
			continue
		}
		for _, x := range t.extents {
			if _, twice := seen[x]; !twice {
				seen[x] = struct{}{}
				all = append(all, x)
			}
		}
	}
	return all
}

// removes notes where in the ring an extent is removed, until removed is called.
func (k *keeper) removes(id core.ExtentID, serial uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.removing[id] = serial
}

// removed notes that the space of a removed extent is given back, or waits for another disk.
func (k *keeper) removed(id core.ExtentID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.removing, id)
	notify(k.wake)
}

// stays reports whether a use of a segment tells of a removal that is not over.
func (k *keeper) stays(serial uint64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, at := range k.removing {
		if at == serial {
			return true
		}
	}
	return false
}

// leave forgets uses that are over.
func (k *keeper) leave(uses []ring.Use) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, u := range uses {
		delete(k.tenants, u.Serial)
	}
}

// fits reports whether a group of so many bytes, and with at most so many of the summary, has room in the segment at
// hand.
func (j *journal) fits(bytes int64, summed int) bool {
	return j.ring.Fits(bytes + ring.SizeForSummary(len(j.summary.entries)+summed))
}

// makeRoom sees to it that the next group fits into the segment at hand: so many bytes, and at most so many more of the
// summary. While none is free, commitLoop waits here: the log is as fast as segments are drained.
func (j *journal) makeRoom(bytes int64, summed int) error {
	if j.fits(bytes, summed) {
		return nil
	}
	if err := j.endSegment(); err != nil {
		return err
	}
	began := time.Now()
	defer func() { j.keeper.waited.Add(int64(time.Since(began))) }()
	bytes += ring.SizeForSummary(summed)
	for !j.ring.Begin(bytes) {
		j.keeper.wanted.Store(bytes)
		notify(j.keeper.wake)
		select {
		case <-j.keeper.made:
		case <-j.e.failed:
			return j.e.refusing()
		}
	}
	j.summary.reset()
	j.keeper.wanted.Store(0)
	j.lookShort()
	notify(j.keeper.wake)
	return nil
}

// endSegment ends the segment at hand, if there is one, with its summary.
func (j *journal) endSegment() error {
	if !j.ring.Begun() {
		return nil
	}
	var b ring.Buffer
	j.summary.put(&b)
	err := j.ring.Summarize(&b)
	if err == nil {
		err = j.ring.End()
	}
	if err != nil {
		return j.e.fail(err)
	}
	return nil
}

// keep makes and drains segments until all groups are settled.
func (j *journal) keep() {
	again := time.NewTimer(keepAgain)
	defer again.Stop()
	for {
		j.flushRows()
		for j.lacks() {
			made, err := j.grow()
			if made {
				continue
			}
			drained := false
			if err == nil {
				drained, err = j.drain()
			}
			if err != nil && !errors.Is(err, errUnread) && j.e.refusing() == nil {
				j.e.backgroundError(err)
			}
			if !drained {
				again.Reset(keepAgain)
				break
			}
			j.repack()
			j.e.awaitDeletions()
		}
		if j.keeper.looks.Swap(false) {
			j.repack()
		}
		if n := j.keeper.wanted.Load(); n > 0 && j.ring.HasFree(n) {
			notify(j.keeper.made) // its last reader has left it, of which nobody was told
		}
		select {
		case <-j.keeper.wake:
		case <-again.C:
		case <-j.e.settled:
			return
		case <-j.e.failed:
			return
		}
	}
}

// lacks reports whether there is to be more room in the ring, or less in it.
func (j *journal) lacks() bool {
	if j.e.refusing() != nil || isClosed(j.e.settled) {
		return false
	}
	free, all := j.ring.Room()
	share := j.keeper.free.Load()
	if all < j.keeper.most {
		share = min(share, growShare)
	}
	return all == 0 || free < all/share || j.keeper.wanted.Load() > 0 && !j.ring.HasFree(j.keeper.wanted.Load()) || j.keeper.batches.Load() > maxHeld
}

// makePause goes between the steps in which a segment is made, unless somebody waits for it.
func (j *journal) makePause() {
	if j.keeper.wanted.Load() == 0 {
		j.e.pause(time.Millisecond)
	}
}

// lookShort looks whether appends soon wait for a segment.
func (j *journal) lookShort() {
	free, all := j.ring.Room()
	j.keeper.short.Store(free < all/shortShare)
}

// hurries reports whether appends wait for a segment, or soon will.
func (k *keeper) hurries() bool { return k.wanted.Load() > 0 || k.short.Load() }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// grow makes one more segment; false when the ring is as large as it may be, or the disk is nearly full. A group that
// fits into none gets one all the same, out of the reserve: nothing is written before it. An error is for such a group.
func (j *journal) grow() (bool, error) {
	_, all := j.ring.Room()
	size := min(max(all, firstSegment), j.keeper.segment())
	need, largest := j.keeper.wanted.Load(), j.ring.Largest()
	may := all+size <= j.keeper.most && (all < 2*firstSegment || !j.e.space.refuseSegment(size))
	switch {
	case need > max(largest, size), need > largest && !may:
		size = need
	case !may:
		return false, nil
	}
	err := j.ring.Make(size, j.makePause)
	switch {
	case err == nil:
		notify(j.keeper.made)
		return true, nil
	case !passes(err):
		return false, j.e.fail(err)
	case need > largest:
		return false, err
	}
	return false, nil
}

// passes reports whether a segment may be made later, though not now.
func passes(err error) bool {
	return core.CodeOf(err) == core.CodeNoSpace || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}
