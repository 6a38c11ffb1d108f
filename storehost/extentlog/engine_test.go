package extentlog_test

import (
	"log/slog"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/columbamq/columba/storehost/extentlog"
	"github.com/columbamq/columba/storehost/extentlog/extentlogtest"
)

func open(fs vfs.FS) (extentlog.Log, error) {
	e, err := extentlog.Open(extentlogtest.Dir, extentlog.Options{Store: "s1", FS: fs, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// files is where the engine's tables and logs lie.
const files = extentlogtest.Dir + "/log"

func TestEngine_Conformance(t *testing.T) { extentlogtest.Run(t, open) }

func TestEngine_Crash(t *testing.T) { extentlogtest.RunCrash(t, open, 1) }

// Pebble v2.1.7 under-reports in its log what was synced when a write spans whole blocks (it leaves them out of the
// sum), so its reader takes some flipped bytes in the newest log for the end.
func TestEngine_Damage(t *testing.T) { extentlogtest.RunDamage(t, open, files, ".log") }

func TestEngine_TornTail(t *testing.T) { extentlogtest.RunTornTail(t, open, files, ".log") }

func BenchmarkEngine(b *testing.B) {
	extentlogtest.RunBench(b, func(b *testing.B) extentlog.Log {
		e, err := extentlog.Open(b.TempDir(), extentlog.Options{Store: "s1"})
		if err != nil {
			b.Fatal(err)
		}
		return e
	})
}

func TestEngine_Model(t *testing.T) { extentlogtest.RunModel(t, open) }

func TestEngine_Faults(t *testing.T) { extentlogtest.RunFaults(t, open, ".log", errorfs.OpFileWrite) }
