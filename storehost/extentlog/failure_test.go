package extentlog

import (
	"errors"
	"fmt"
	"path"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// tableless is a disk on which no table can be made while it is full.
func tableless() (disk vfs.FS, full *atomic.Bool) {
	full = new(atomic.Bool)
	return errorfs.Wrap(fixedDisk{vfs.NewMem(), 64 << 20, 64 << 20}, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind == errorfs.OpCreate && path.Ext(op.Path) == ".sst" {
			return syscall.ENOSPC
		}
		return nil
	})), full
}

// TestEngine_NothingCanBeFlushed: no segment can be drained, and the log waits for one. It fails, and nobody waits for
// ever.
func TestEngine_NothingCanBeFlushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, full := tableless()
		e := newEngine(t, "store", disk)
		x := newExtent()
		if err := e.Open(x); err != nil {
			t.Fatal(err)
		}
		full.Store(true)
		var h wire.BatchHeader
		var answers sync.WaitGroup
		var refusals atomic.Int64
		for range 50 { // of 256 KiB, for a ring of 4 MiB
			answers.Add(1)
			e.Append(x.ID, nextBatch(t, &h, 256<<10), 0, func(_ core.Seq, err error) {
				defer answers.Done()
				if err != nil {
					refusals.Add(1)
					if core.CodeOf(err) != core.CodeUnavailable {
						t.Errorf("append: %v, want %q", err, core.CodeUnavailable)
					}
				}
			})
		}
		time.Sleep(500 * time.Millisecond) // until the log waits; before, the fence would overtake the appends
		if _, err := e.Fence(x, 1); core.CodeOf(err) != core.CodeUnavailable {
			t.Errorf("fence that waits: %v, want %q", err, core.CodeUnavailable)
		}
		answers.Wait()
		if refusals.Load() == 0 {
			t.Error("all appends were taken")
		}
		for what, err := range map[string]error{"open": e.Open(newExtent()), "seal": e.Seal(x.ID, 1, 1, 1), "remove": e.Remove(x.ID, 1)} {
			if core.CodeOf(err) != core.CodeUnavailable {
				t.Errorf("%s afterwards: %v, want %q", what, err, core.CodeUnavailable)
			}
		}
		if _, err := e.Read(x.ID, 1, 1, 1); err != nil {
			t.Errorf("read afterwards: %v", err)
		}
		if err := e.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
}

func TestEngine_BackgroundErrorsFence(t *testing.T) {
	e := newEngine(t, "store", vfs.NewMem())
	x := newExtent()
	if err := e.Open(x); err != nil {
		t.Fatal(err)
	}
	for range maxFailures {
		e.backgroundError(fmt.Errorf("compact: %w", pebble.ErrCancelledCompaction)) // by a removal: no failure
	}
	for range maxFailures - 1 {
		e.backgroundError(errors.New("flush failed"))
	}
	if err := e.Open(newExtent()); err != nil {
		t.Fatalf("refused after %d errors: %v", maxFailures-1, err)
	}
	e.backgroundError(errors.New("flush failed"))
	if _, err := e.Fence(x, 0); core.CodeOf(err) != core.CodeUnavailable {
		t.Fatalf("fence on a broken disk: %v, want %q", err, core.CodeUnavailable)
	}
	if _, err := e.Read(x.ID, 1, 1, 1); err != nil {
		t.Fatalf("read on a broken disk: %v", err)
	}
}

// TestEngine_AnswersOnceWhenItFails: rounds after a failure leave an earlier round alone that is still being answered.
func TestEngine_AnswersOnceWhenItFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var held atomic.Pointer[chan struct{}]
		var broken atomic.Bool
		e := newEngine(t, "store", errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind != errorfs.OpFileWriteAt || path.Ext(op.Path) != ".seg" {
				return nil
			}
			if c := held.Load(); c != nil {
				<-*c
			}
			if broken.Load() {
				return syscall.EIO
			}
			return nil
		})))
		x := newExtent()
		must(t, e.Open(x))
		var h wire.BatchHeader
		answers := make([]atomic.Int32, 5)
		stuck := make(chan struct{})
		appendOne := func(i int, meanwhile func()) {
			e.Append(x.ID, nextBatch(t, &h, 100), 0, func(core.Seq, error) { answers[i].Add(1); meanwhile() })
		}
		none := func() {}

		hold := make(chan struct{})
		held.Store(&hold)
		appendOne(0, none)
		synctest.Wait() // it is being written, and the next two are one round
		appendOne(1, func() { <-stuck })
		appendOne(2, none)
		held.Store(nil)
		close(hold)
		synctest.Wait()

		broken.Store(true)
		again := make(chan struct{})
		held.Store(&again)
		appendOne(3, none)
		synctest.Wait()
		appendOne(4, none)
		held.Store(nil)
		close(again)
		synctest.Wait()
		closed := make(chan error, 1)
		go func() { closed <- e.Close() }()
		synctest.Wait()
		close(stuck)
		<-closed // with an error: the log has failed
		synctest.Wait()
		for i := range answers {
			if n := answers[i].Load(); n != 1 {
				t.Errorf("append %d was answered %d times, want once", i, n)
			}
		}
	})
}
