package extentlog

import (
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

var throughput = flag.Int64("throughput", 256, "MiB that TestSmallVolume_Turnover writes to a volume of 256 MiB; to smaller ones, a share of it")

// turnover is a load of extents of 32 KiB to 1 MiB, but to a 64th of the volume at most. A sixteenth of the volume is
// alive at a time. Extents are written a few at once, and removed in no order. One extent stays open and gets a record
// now and then; one is sealed early, stays, and has a reader.
type turnover struct {
	t       *testing.T
	e       *Engine
	random  *rand.Rand
	writing []*turned
	sealed  []*turned
	slow    *turned
	pinned  *turned
	live    int64 // bytes of extents, but for the slow one and the one that stays
	sum     int64 // bytes ever appended
	next    core.Seq
	least   int64         // bytes of an extent
	most    int64         // … but for the least, and less than a 64th of the volume
	batch   int           // bytes, about
	longest time.Duration // of a call of append
}

// turned is an extent of the load.
type turned struct {
	x           core.Extent
	h           wire.BatchHeader
	bytes, size int64
}

func (l *turnover) open(size int64) *turned {
	l.t.Helper()
	o := &turned{x: newExtent(), size: size}
	if err := l.e.Open(o.x); err != nil {
		l.t.Fatalf("open after %d KiB: %v\n%s", l.sum>>10, err, whereSpaceIs(l.e))
	}
	return o
}

// append gives some extents a batch each, all at once.
func (l *turnover) append(to []*turned, size func() int) {
	l.t.Helper()
	answers := make(chan error, len(to))
	began := time.Now()
	for _, o := range to {
		batch := nextBatch(l.t, &o.h, size())
		o.bytes, l.sum = o.bytes+int64(len(batch)), l.sum+int64(len(batch))
		l.e.Append(o.x.ID, batch, 0, func(_ core.Seq, err error) { answers <- err })
	}
	for range to {
		if err := <-answers; err != nil {
			l.t.Fatalf("append after %d KiB: %v\n%s", l.sum>>10, err, whereSpaceIs(l.e))
		}
	}
	l.longest = max(l.longest, time.Since(began))
}

func (l *turnover) seal(o *turned) {
	l.t.Helper()
	s, err := l.e.Fence(o.x, 1)
	must(l.t, err)
	must(l.t, l.e.Seal(o.x.ID, s.Last, s.Checksum, 1))
}

// step appends to all extents that are open, seals those that are full, and removes some of the others.
func (l *turnover) step(most int64) {
	l.t.Helper()
	const atOnce = 4
	for len(l.writing) < atOnce {
		l.writing = append(l.writing, l.open(l.least+l.random.Int64N(min(l.most, most/4)-l.least)))
	}
	before := l.sum
	l.append(l.writing, func() int { return l.batch/4 + l.random.IntN(7*l.batch/4) })
	l.live += l.sum - before
	l.append([]*turned{l.slow}, func() int { return 20 })
	l.writing = slices.DeleteFunc(l.writing, func(o *turned) bool {
		if o.bytes < o.size {
			return false
		}
		l.seal(o)
		l.sealed = append(l.sealed, o)
		return true
	})
	for l.live > most && len(l.sealed) > 0 {
		i := l.random.IntN(len(l.sealed))
		o := l.sealed[i]
		must(l.t, l.e.Remove(o.x.ID, 1))
		l.sealed, l.live = slices.Delete(l.sealed, i, i+1), l.live-o.bytes
	}
}

// read goes on reading the extent that stays.
func (l *turnover) read() {
	l.t.Helper()
	if l.next > l.pinned.h.Last() {
		l.next = 1
	}
	b, err := l.e.Read(l.pinned.x.ID, l.next, l.pinned.h.Last(), 16<<10)
	must(l.t, err)
	l.next = lastOf(l.t, b) + 1
}

func lastOf(t *testing.T, run []byte) (last core.Seq) {
	t.Helper()
	for len(run) > 0 {
		b, rest, err := wire.NextBatch(run)
		must(t, err)
		last, run = b.Last(), rest
	}
	return last
}

// whereSpaceIs tells what takes the space of a volume.
func whereSpaceIs(e *Engine) string {
	m := e.db.Metrics()
	free, all := e.journal.ring.Room()
	f := e.space.fill()
	return fmt.Sprintf("free %d of %d KiB, reserve %d; ring %d, free %d, owed %d; tables %d KiB in %d, virtual %d KiB in %d over %d KiB in %d; zombies %d KiB, obsolete %d KiB; memtables %d KiB in %d",
		f.free>>10, f.total>>10, f.reserve()>>10, all>>10, free>>10, e.journal.keeper.bytes.Load()>>10,
		m.Total().TablesSize>>10, m.Total().TablesCount, m.VirtualSize()>>10, m.NumVirtual(), m.Table.BackingTableSize>>10, m.Table.BackingTableCount,
		m.Table.ZombieSize>>10, m.Table.ObsoleteSize>>10, m.MemTable.Size>>10, m.MemTable.Count)
}

// TestSmallVolume_Turnover: many times what a volume holds goes through it as fast as it takes it, and nothing is
// refused.
func TestSmallVolume_Turnover(t *testing.T) {
	oneAtATime(t)
	for _, total := range []int64{16 << 20, 32 << 20, 64 << 20, 256 << 20} {
		t.Run(fmt.Sprintf("%d MiB", total>>20), func(t *testing.T) {
			turnOver(t, total, *throughput<<20*total/(256<<20), turnover{least: 32 << 10, most: 1 << 20, batch: 16 << 10})
		})
	}
}

// TestSmallVolume_SmallExtents: the same with extents that are smaller than a block of a table.
func TestSmallVolume_SmallExtents(t *testing.T) {
	oneAtATime(t)
	const total = 32 << 20
	turnOver(t, total, *throughput<<20/4, turnover{least: 2 << 10, most: 16 << 10, batch: 2 << 10})
}

func turnOver(t *testing.T, total, through int64, l turnover) {
	synctest.Test(t, func(t *testing.T) {
		disk := newQuota(total)
		e, err := Open("store", Options{Store: "s1", FS: disk, Log: slog.New(slog.DiscardHandler)})
		must(t, err)
		defer func() { must(t, e.Close()) }()
		l.t, l.e, l.random, l.next = t, e, rand.New(rand.NewPCG(1, uint64(total))), 1
		l.slow, l.pinned = l.open(0), l.open(0)
		for range 16 {
			l.append([]*turned{l.pinned}, func() int { return 8 << 10 })
		}
		l.seal(l.pinned)
		for l.sum < through {
			l.step(total / 16)
			l.read()
		}
		for _, o := range append(slices.Clone(l.sealed), l.slow, l.pinned) {
			if v, err := e.Verify(t.Context(), o.x.ID); err != nil || !v.Sound {
				t.Errorf("extent %s: %+v, %v", o.x.ID, v, err)
			}
		}
		if n := e.db.Metrics().Levels[0].TablesCount; n > 3*int64(e.space.fill().tables()) {
			t.Errorf("the first level has %d tables", n)
		}
		wrote := disk.wrote[".sst"] + disk.wrote[".seg"] + disk.wrote[""]
		t.Logf("%d MiB of batches: %.2f bytes written for each; %d MiB drained, %d MiB moved, %d MiB in tables, %d MiB in the log, %d MiB else; the longest append %s; at most %d of %d KiB used %v; %s", l.sum>>20, float64(wrote)/float64(l.sum),
			e.journal.keeper.drained.Load()>>20, e.journal.keeper.moved.Load()>>20, disk.wrote[".sst"]>>20, disk.wrote[".seg"]>>20, disk.wrote[""]>>20, l.longest, disk.most>>10, total>>10, disk.peak, whereSpaceIs(e))
	})
}
