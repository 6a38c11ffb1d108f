package extentlog_test

import (
	"errors"
	"path"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/columbamq/columba/storehost/extentlog/extentlogtest"
)

// A second fence has nothing to write while the first one's sync is under way. When that sync fails, neither may
// succeed: the second one's answer, too, counts on what the first one wrote.
func TestEngine_FenceBehindAFailedSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var armed atomic.Bool
		release := make(chan struct{})
		fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if !armed.Load() || path.Ext(op.Path) != ".seg" {
				return nil
			}
			switch op.Kind {
			case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
				<-release
				return errors.New("injected")
			}
			return nil
		}))
		l, err := open(fs)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		e, w := extentlogtest.Extent(), new(extentlogtest.Writer)
		if err := l.Open(e); err != nil {
			t.Fatal(err)
		}
		if _, err := extentlogtest.Append(l, e.ID, w.Batch(1, 100), 0); err != nil {
			t.Fatal(err)
		}
		armed.Store(true)
		var wg sync.WaitGroup
		for i := range 2 {
			wg.Go(func() {
				if s, err := l.Fence(e, 0); err == nil {
					t.Errorf("fence %d: got last %d without an error, want the failed sync", i+1, s.Last)
				}
			})
			synctest.Wait()
		}
		close(release)
		wg.Wait()
	})
}
