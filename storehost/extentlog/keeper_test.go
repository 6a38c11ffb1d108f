package extentlog

import (
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

// TestDrain_UnreadableSector: a part of the log that cannot be read costs the extents that have batches there, once it
// is sure that it stays so, and not the store.
func TestDrain_UnreadableSector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bad atomic.Bool
		e := turning(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if bad.Load() && op.Kind == errorfs.OpFileReadAt && path.Ext(op.Path) == ".seg" {
				return syscall.EIO
			}
			return nil
		})))
		x, h := newExtent(), wire.BatchHeader{}
		must(t, e.Open(x))
		appendBatch(t, e, x, nextBatch(t, &h, 100))
		must(t, e.do(request{control: true, stage: func(*group) error { return e.journal.ring.End() }}))
		bad.Store(true)
		e.journal.keeper.free.Store(1)
		notify(e.journal.keeper.wake)
		<-time.After(5 * time.Minute)
		if s, err := e.State(x.ID); err != nil || !s.Damaged {
			t.Errorf("%+v, %v; want it quarantined", s, err)
		}
		must(t, e.Open(newExtent()))
	})
}

// TestRing_ReaderOfTheOnlySegment: appends wait for a segment that is drained and still read, and go on once it is not.
func TestRing_ReaderOfTheOnlySegment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g readGate
		e := turning(t, g.disk())
		x, h := newExtent(), wire.BatchHeader{}
		must(t, e.Open(x))
		appendBatch(t, e, x, nextBatch(t, &h, 100<<10)) // no other segment has room for as much
		open := g.shut()
		read := make(chan error, 1)
		go func() {
			_, err := e.Read(x.ID, 1, 1, 1)
			read <- err
		}()
		synctest.Wait()
		taken := make(chan error, 1)
		e.Append(x.ID, nextBatch(t, &h, 100<<10), 0, func(_ core.Seq, err error) { taken <- err })
		<-time.After(time.Second)
		open()
		must(t, <-read)
		select {
		case err := <-taken:
			must(t, err)
		case <-time.After(time.Minute):
			t.Error("an append waits for ever")
			e.fail(errUnanswered)
		}
	})
}
