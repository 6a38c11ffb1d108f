package extentlog

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// TestLoss_GoesOn: after rows were lost, the store opens nothing for a minute, and then goes on. A suspect replica
// stays suspect, also after a crash and a verification, until it is removed and copied anew.
func TestLoss_GoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewCrashableMem()
		open := func() *Engine {
			e, err := Open("store", Options{Store: "s1", FS: disk, Log: slog.New(slog.DiscardHandler)})
			must(t, err)
			synctest.Wait() // the rows of the run before are in tables, and none of this one
			return e
		}
		crash := func(e *Engine) {
			time.Sleep(2 * markAfter)
			left := killed(disk)
			must(t, e.Close())
			disk = left
		}
		e := open()
		known := newOpenExtent(t, e)
		var h wire.BatchHeader
		batch := nextBatch(t, &h, 1000)
		appendBatch(t, e, known, batch)
		must(t, e.Close()) // its rows are in a table
		e = open()
		unknown := newOpenExtent(t, e)
		appendBatches(t, e, unknown, 2, 1000)
		crash(e)
		for _, name := range segmentsOf(t, disk) {
			if b := readFile(t, disk, name); len(b) > 0 && writeDamage(b, unknown.ID) {
				writeFile(t, disk, name, b)
			}
		}

		e = open()
		if err := e.Open(newExtent()); core.CodeOf(err) != core.CodeUnavailable || !e.Vitals().Refuses {
			t.Errorf("open at once: %v, want %q", err, core.CodeUnavailable)
		}
		crash(e)
		e = open()
		time.Sleep(lossMargin + time.Second)
		fresh := newOpenExtent(t, e)
		appendBatches(t, e, fresh, 2, 1000)
		if err := e.Open(unknown); core.CodeOf(err) != core.CodeFenced {
			t.Errorf("open of a lost extent: %v, want %q", err, core.CodeFenced)
		}
		if s, err := e.Fence(unknown, 1); err != nil || !s.Damaged {
			t.Errorf("fence of a lost extent: %+v, %v, want damaged", s, err)
		}
		if v, err := e.Verify(t.Context(), known.ID); err != nil || v.Sound || v.Lifted {
			t.Errorf("verify: %+v, %v, want it suspect", v, err)
		}
		crash(e)

		e = open()
		defer func() { must(t, e.Close()) }()
		for id, want := range map[core.ExtentID]bool{known.ID: true, unknown.ID: true, fresh.ID: false} {
			if s, err := e.State(id); err != nil || s.Damaged != want {
				t.Errorf("after a crash: %+v, %v, want damaged: %v", s, err, want)
			}
		}
		if v, err := e.Verify(t.Context(), fresh.ID); err != nil || !v.Sound {
			t.Errorf("verify of a new extent: %+v, %v", v, err)
		}
		if err := e.Seal(unknown.ID, 2, 7, 2); core.CodeOf(err) != core.CodeCorrupt {
			t.Errorf("seal: %v, want %q", err, core.CodeCorrupt)
		}
		must(t, e.Remove(unknown.ID, 2))
		if s, err := e.Fence(unknown, 3); err != nil || s.Damaged {
			t.Errorf("fence by a newer version: %+v, %v, want it sound", s, err)
		}
		if last, err := e.Copy(unknown.ID, batch); err != nil || last != 1 {
			t.Errorf("copy: up to %d, %v", last, err)
		}
	})
}

// writeDamage flips a bit in the opening of an extent.
func writeDamage(segment []byte, id core.ExtentID) bool {
	for at := range len(segment) - idLen {
		if core.ID(segment[at:at+idLen]) == id.ID {
			segment[at] ^= 1
			return true
		}
	}
	return false
}
