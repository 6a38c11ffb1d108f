package extentlog

import (
	"log/slog"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestRepack_VerySlowTables: a disk on which one read takes longer than a turn plans keeps no table as it is.
func TestRepack_VerySlowTables(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowReads{FS: vfs.NewMem()}
		e, err := Open("store", Options{Store: "s1", FS: slow.disk(), Log: slog.New(slog.DiscardHandler), Ring: 64 << 20})
		must(t, err)
		defer func() {
			slow.each.Store(0)
			must(t, e.Close())
		}()
		stays, goes := newWriter(t, e), newWriter(t, e)
		stays.append(8, 10<<10)
		goes.append(30, 10<<10)
		drainAll(t, e)
		must(t, removeTold(e, goes.x, 1))
		time.Sleep(2 * time.Second)
		slow.each.Store(int64(120 * time.Millisecond))
		repackAll(e)
		time.Sleep(2 * time.Minute)
		began := time.Now()
		drainAll(t, e)
		took := time.Since(began)
		slow.each.Store(0)
		if n := e.journal.keeper.moved.Load(); n < 80<<10 || took > 5*time.Second {
			t.Errorf("%d KiB were moved, and a drain took %s; %s", n>>10, took, whereSpaceIs(e))
		}
		sound(t, e, stays)
	})
}

// TestRepack_RemovalIsSoonOver: an extent whose removal lasts three seconds keeps its table from being moved for little
// longer.
func TestRepack_RemovalIsSoonOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := openHostile(t, vfs.NewMem())
		defer func() { must(t, e.Close()) }()
		stays, goes := newWriter(t, e), newWriter(t, e)
		stays.append(4, 10<<10)
		goes.append(30, 10<<10)
		drainAll(t, e)
		must(t, removeTold(e, goes.x, 1))
		time.Sleep(2 * time.Second)
		e.moves.removes(stays.x.ID)
		repackAll(e)
		time.Sleep(3 * time.Second)
		if n := e.journal.keeper.moved.Load(); n > 0 {
			t.Fatalf("%d bytes were moved, one of which is being removed", n)
		}
		e.moves.removed(stays.x.ID)
		time.Sleep(10 * time.Second)
		if n := e.journal.keeper.moved.Load(); n < 40<<10 {
			t.Errorf("%d bytes were moved 10 s after the removal", n)
		}
	})
}

// TestRepack_RingOnlyRemovals: the removal of an extent that only the log has leaves no deletion to be flushed.
func TestRepack_RingOnlyRemovals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := openHostile(t, vfs.NewMem())
		defer func() { must(t, e.Close()) }()
		w, tabled := newWriter(t, e), newWriter(t, e)
		tabled.append(1, 100)
		drainAll(t, e)
		before := e.moves.deletions.Load()
		w.append(1, 100)
		must(t, removeTold(e, w.x, 1))
		if n := e.moves.deletions.Load(); n != before {
			t.Errorf("%d deletions, want %d", n, before)
		}
		must(t, removeTold(e, tabled.x, 1))
		if n := e.moves.deletions.Load(); n != before+1 {
			t.Errorf("%d deletions after that of an extent in a table, want %d", n, before+1)
		}
	})
}

// TestRepacker_LeavesLonger: a table that cannot be repacked is left alone twice as long each time, until something is
// cut out of it or more may be moved.
func TestRepacker_LeavesLonger(t *testing.T) {
	r := repacker{later: make(map[uint64]later)}
	table, now := &sparseTable{number: 7, size: 100, live: 40}, time.Unix(1, 0)
	for _, wait := range []time.Duration{5, 10, 20, 40, 60, 60} {
		wait *= time.Second
		if r.leaves(table, 50, now) {
			t.Fatalf("it is left alone, want tried again, and then left for %s", wait)
		}
		r.leave(table, 50, weighAgain, weighMost, now)
		if now = now.Add(wait - 1); !r.leaves(table, 50, now) {
			t.Fatalf("it is not left alone for %s", wait)
		}
		now = now.Add(1)
	}
	r.leave(table, 50, weighAgain, weighMost, now)
	if r.leaves(table, 51, now) {
		t.Error("more may be moved, and it is left alone")
	}
	r.leave(table, math.MaxInt64, damagedFor, damagedMost, now)
	table.live = 39
	if r.leaves(table, 50, now) {
		t.Error("something was cut out, and it is left alone")
	}
}
