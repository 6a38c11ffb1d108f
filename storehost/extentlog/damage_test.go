package extentlog

import (
	"errors"
	"fmt"
	"path"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// failing is a disk whose tables cannot be opened, or read, while it fails.
func failing(kinds ...errorfs.OpKind) (disk vfs.FS, with *atomic.Pointer[error]) {
	with = new(atomic.Pointer[error])
	return errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		err := with.Load()
		if err == nil || path.Ext(op.Path) != ".sst" {
			return nil
		}
		for _, k := range kinds {
			if op.Kind == k {
				return fmt.Errorf("table: %w", *err)
			}
		}
		return nil
	})), with
}

func readAll(e *Engine, id core.ExtentID) error {
	s, err := e.State(id)
	if err == nil {
		_, err = e.Read(id, 1, s.Last, 1<<20)
	}
	return err
}

func TestDamage_WhatMayPassIsNone(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EINTR, syscall.EAGAIN, syscall.EIO, syscall.ENOSPC} {
		t.Run(errno.Error(), func(t *testing.T) {
			disk, with := failing(errorfs.OpOpen)
			ids := fillSealed(t, disk, 3)
			e := newEngine(t, "store", disk)
			err := error(errno)
			with.Store(&err)
			for _, id := range ids {
				if err := readAll(e, id); core.CodeOf(err) != core.CodeUnavailable {
					t.Errorf("read: got %v, want %q", err, core.CodeUnavailable)
				}
				if _, err := e.Seek(id, 0); core.CodeOf(err) != core.CodeUnavailable {
					t.Errorf("seek: got %v, want %q", err, core.CodeUnavailable)
				}
				if v, err := e.Verify(t.Context(), id); core.CodeOf(err) != core.CodeUnavailable {
					t.Errorf("verify: got %+v, %v, want %q", v, err, core.CodeUnavailable)
				}
			}
			with.Store(nil)
			for _, id := range ids {
				if err := readAll(e, id); err != nil {
					t.Errorf("read afterwards: %v", err)
				}
			}
			if v := e.Vitals(); v.DamagedExtents != 0 {
				t.Errorf("%d extents are quarantined", v.DamagedExtents)
			}
		})
	}
}

// TestDamage_PersistentIOErrors: one I/O error, or many at once, are none; those that go on for a minute are.
func TestDamage_PersistentIOErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, with := failing(errorfs.OpOpen)
		ids := fillSealed(t, disk, 2)
		e := newEngine(t, "store", disk)
		err := error(syscall.EIO)
		with.Store(&err)
		for range 50 {
			if err := readAll(e, ids[0]); core.CodeOf(err) != core.CodeUnavailable {
				t.Fatalf("errors at once: got %v, want %q", err, core.CodeUnavailable)
			}
		}
		time.Sleep(ioErrorsSpan - time.Second)
		if err := readAll(e, ids[0]); core.CodeOf(err) != core.CodeUnavailable {
			t.Fatalf("just before the bound: got %v, want %q", err, core.CodeUnavailable)
		}
		time.Sleep(ioErrorsApart)
		if err := readAll(e, ids[0]); core.CodeOf(err) != core.CodeCorrupt {
			t.Fatalf("errors over %s: got %v, want %q", ioErrorsSpan, err, core.CodeCorrupt)
		}
		for range 5 { // the other one fails once in an hour
			if err := readAll(e, ids[1]); core.CodeOf(err) != core.CodeUnavailable {
				t.Fatalf("rare errors: got %v, want %q", err, core.CodeUnavailable)
			}
			time.Sleep(ioErrorsForget + time.Second)
		}
		with.Store(nil)
		if s, _ := e.State(ids[0]); !s.Damaged || s.Why == "" {
			t.Errorf("got %+v, want damaged, with a reason", s)
		}
	})
}

// quarantined is an engine with one whole extent that was quarantined.
func quarantined(t *testing.T, disk vfs.FS) (*Engine, core.ExtentID) {
	t.Helper()
	id := fillSealed(t, disk, 1)[0]
	e := newEngine(t, "store", disk)
	e.quarantine(e.extent(id), "an I/O error that lasted", false)
	return e, id
}

func TestVerify_LiftsTheQuarantineOfAWholeReplica(t *testing.T) {
	disk := vfs.NewMem()
	e, id := quarantined(t, disk)
	if err := readAll(e, id); core.CodeOf(err) != core.CodeCorrupt {
		t.Fatalf("read of a quarantined extent: %v, want %q", err, core.CodeCorrupt)
	}
	before := e.Inventory(InventoryQuery{Most: 10})
	v, err := e.Verify(t.Context(), id)
	if err != nil || !v.Sound || !v.Lifted || v.Bytes < 500<<10 {
		t.Fatalf("verify: got %+v, %v, want sound and lifted, after all bytes", v, err)
	}
	if err := readAll(e, id); err != nil {
		t.Errorf("read afterwards: %v", err)
	}
	after := e.Inventory(InventoryQuery{After: before.Position, Most: 10})
	if len(after.Replicas) != 1 || after.Replicas[0].Damaged || after.Digests == before.Digests {
		t.Errorf("inventory afterwards: %+v, want the replica, sound, and another digest", after.Replicas)
	}
	if v, err = e.Verify(t.Context(), id); err != nil || !v.Sound || v.Lifted {
		t.Errorf("verify again: got %+v, %v, want sound and nothing lifted", v, err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = newEngine(t, "store", disk)
	if s, err := e.State(id); err != nil || s.Damaged || s.Why != "" {
		t.Errorf("after a restart: %+v, %v, want no damage", s, err)
	}
}

func TestVerify_DamageStays(t *testing.T) {
	disk := vfs.NewMem()
	e, id := quarantined(t, disk)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	flip(t, disk, id)
	e = newEngine(t, "store", disk)
	v, err := e.Verify(t.Context(), id)
	if err != nil || v.Sound || v.Lifted || v.Why == "" {
		t.Fatalf("verify: got %+v, %v, want not sound, with a reason", v, err)
	}
	if s, _ := e.State(id); !s.Damaged {
		t.Error("the quarantine was lifted")
	}
}

func TestVerify_DivergedReplicaStaysQuarantined(t *testing.T) {
	disk := vfs.NewMem()
	e := newEngine(t, "store", disk)
	x := newExtent()
	must(t, e.Open(x))
	appendBatch(t, e, x, nextBatch(t, new(wire.BatchHeader), 1000))
	s, err := e.Fence(x, 0)
	must(t, err)
	if err := e.Seal(x.ID, s.Last, s.Checksum+1, 1); core.CodeOf(err) != core.CodeCorrupt {
		t.Fatalf("seal with another checksum: %v, want %q", err, core.CodeCorrupt)
	}
	must(t, e.Close())
	e = newEngine(t, "store", disk)
	if v, err := e.Verify(t.Context(), x.ID); err != nil || v.Sound || v.Lifted || v.Why == "" {
		t.Errorf("verify: got %+v, %v, want not sound, with a reason", v, err)
	}
	if s, _ := e.State(x.ID); !s.Damaged {
		t.Error("the quarantine was lifted")
	}
}

// TestVerify_DamageFoundMeanwhileWins: a verdict while the quarantine is being lifted is not lost, and not before a
// restart either.
func TestVerify_DamageFoundMeanwhileWins(t *testing.T) {
	disk := vfs.NewMem()
	e, id := quarantined(t, disk)
	x := e.extent(id)
	_, err := e.verifyReplica(x, func(int) error {
		x.damage("found by somebody else")
		return nil
	})
	if core.CodeOf(err) != core.CodeConflict {
		t.Fatalf("verify: got %v, want %q", err, core.CodeConflict)
	}
	if !x.acquit(x.verdict()) {
		t.Fatal("no lift begins")
	}
	e.quarantine(x, "found while it was lifted", false)
	x.release()
	if s, _ := e.State(id); !s.Damaged {
		t.Error("the quarantine was lifted")
	}
	must(t, e.Close())
	e = newEngine(t, "store", disk)
	if s, _ := e.State(id); !s.Damaged {
		t.Error("the quarantine was lifted after a restart")
	}
}

// TestScrub_StopsAtAnErrorThatIsNoDamage, waits, and goes on where it was, also after a restart.
func TestScrub_StopsAtAnErrorThatIsNoDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const extents, size, rate = 20, 500 << 10, 16 << 10
		disk, with := failing(errorfs.OpOpen, errorfs.OpFileReadAt)
		fillSealed(t, disk, extents)
		e, err := Open("store", Options{Store: "s1", FS: disk, ScrubRate: rate})
		must(t, err)
		emfile := error(syscall.EMFILE)
		with.Store(&emfile)
		time.Sleep(3*scrubDelay - time.Second)
		if v := e.Vitals(); v.DamagedExtents != 0 || v.ScrubbedBytes != 0 {
			t.Fatalf("without descriptors: %+v, want nothing read and nothing quarantined", v)
		}
		with.Store(nil)
		time.Sleep(time.Minute)
		with.Store(&emfile)
		time.Sleep(scrubDelay)
		if v := e.Vitals(); v.DamagedExtents != 0 || v.ScrubbedBytes > 80*rate {
			t.Fatalf("without descriptors again: %+v, want no more than a minute's bytes and nothing quarantined", v)
		}
		with.Store(nil)
		time.Sleep(scrubDelay + time.Minute)
		half := e.Vitals().ScrubbedBytes
		if half < 2*60*rate || half >= extents*size*3/4 {
			t.Fatalf("%d bytes verified, want some minutes' but not all", half)
		}
		must(t, e.Close())
		e, err = Open("store", Options{Store: "s1", FS: disk, ScrubRate: rate})
		must(t, err)
		time.Sleep(4 * scrubDelay)
		rest := e.Vitals().ScrubbedBytes
		if most := uint64(extents*size + 2*size + 5*60*rate); rest+half < extents*size || rest+half > most {
			t.Errorf("%d bytes verified before the restart and %d after it, want %d to %d together", half, rest, extents*size, most)
		}
		must(t, e.Close())
		e, err = Open("store", Options{Store: "s1", FS: disk, ScrubRate: rate})
		must(t, err)
		time.Sleep(2 * scrubDelay)
		if again := e.Vitals().ScrubbedBytes; again != 0 {
			t.Errorf("%d bytes verified again after a restart on the same day", again)
		}
		must(t, e.Close())
	})
}

// TestScrub_LiftsTheQuarantineOfAWholeReplica after a while.
func TestScrub_LiftsTheQuarantineOfAWholeReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		ids := fillSealed(t, disk, 2)
		e, err := Open("store", Options{Store: "s1", FS: disk, ScrubRate: 4 << 20})
		must(t, err)
		e.quarantine(e.extent(ids[0]), "an I/O error that lasted", false)
		time.Sleep(reverifyFirst)
		if s, _ := e.State(ids[0]); !s.Damaged {
			t.Errorf("lifted before %s", reverifyFirst)
		}
		time.Sleep(reverifyFirst)
		if s, _ := e.State(ids[0]); s.Damaged {
			t.Errorf("still quarantined after %s", 2*reverifyFirst)
		}
		must(t, e.Close())
	})
}

// TestRemove_InADamagedTable: an extent is removed from a table that cannot be read, which has other extents, too.
// Nothing of it can be cut out there. The store goes on.
func TestRemove_InADamagedTable(t *testing.T) {
	disk, with := failing(errorfs.OpOpen)
	ids := fillSealed(t, disk, 3)
	e := newEngine(t, "store", disk)
	open := newExtent()
	must(t, e.Open(open))
	appendBatches(t, e, open, 1, exciseAbove)
	s, err := e.State(ids[1])
	must(t, err)
	must(t, e.Seal(ids[1], s.Last, s.Checksum, 1))
	damaged := errors.New("it is damaged")
	with.Store(&damaged)
	if err := e.Remove(ids[1], 1); core.CodeOf(err) != core.CodeInternal {
		t.Errorf("remove: %v, want to hear that the space stays taken", err)
	}
	flushed, err := e.db.AsyncFlush()
	must(t, err)
	select {
	case <-flushed:
	case <-e.Failed():
		t.Fatal("the store failed")
	}
	if n := e.failures.Load(); n > 0 {
		t.Errorf("%d flushes failed", n)
	}
	with.Store(nil)
	for _, id := range []core.ExtentID{ids[0], ids[2]} {
		if err := readAll(e, id); err != nil {
			t.Errorf("an extent beside it: %v", err)
		}
	}
	if _, err := e.State(ids[1]); core.CodeOf(err) != core.CodeNotFound {
		t.Errorf("the removed extent: %v", err)
	}
}
