package pebble

import (
	"fmt"
	"log/slog"
	"os"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// logbook is a log that tests read.
type logbook struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logbook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// While no table can be made, the engine tries again with pauses and few lines; then it goes on.
func TestStore_FlushWaitsForDescriptors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var short atomic.Bool
		var tries atomic.Int64
		disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if short.Load() && op.Kind == errorfs.OpCreate && path.Ext(op.Path) == ".sst" {
				if tries.Add(1) > 10_000 {
					short.Store(false) // the test has failed, and shall end
				}
				return &os.PathError{Op: "open", Path: op.Path, Err: syscall.EMFILE}
			}
			return nil
		}))
		if err := disk.MkdirAll("data", os.ModePerm); err != nil {
			t.Fatal(err)
		}
		var out logbook
		s, err := open(disk, "data/metadata", 0, slog.New(slog.NewTextHandler(&out, nil)))
		if err != nil {
			t.Fatal(err)
		}
		for round := range 2 { // the second begins with a short pause again
			out.mu.Lock()
			out.text.Reset()
			out.mu.Unlock()
			if err := s.Insert(t.Context(), swaps, key(fmt.Sprint(round)), nil); err != nil {
				t.Fatal(err)
			}
			short.Store(true)
			tries.Store(0)
			flushed, err := s.db.AsyncFlush()
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(90 * time.Second)
			if n := tries.Load(); n < 60 || n > 120 {
				t.Errorf("%d tries to flush in 90 s, want about one a second", n)
			}
			if n := strings.Count(out.String(), "level=ERROR"); n < 1 || n > 4 {
				t.Errorf("%d lines in 90 s, want one and then one every 30 s:\n%s", n, out.String())
			}
			if !strings.Contains(out.String(), "suppressed=") {
				t.Errorf("the log does not say how many lines were left out:\n%s", out.String())
			}
			short.Store(false)
			begin := time.Now()
			<-flushed
			if d := time.Since(begin); d > maxFlushPause {
				t.Errorf("flush after the shortage: done after %s, want at most %s", d, maxFlushPause)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}
