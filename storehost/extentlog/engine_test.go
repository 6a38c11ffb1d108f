package extentlog_test

import (
	"log/slog"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/columbamq/columba/storehost/extentlog"
	"github.com/columbamq/columba/storehost/extentlog/extentlogtest"
)

// open opens a log with the smallest ring there is: what tests append goes round in it.
func open(fs vfs.FS) (extentlog.Log, error) {
	e, err := extentlog.Open(extentlogtest.Dir, extentlog.Options{Store: "s1", FS: fs, Log: slog.New(slog.DiscardHandler), Ring: 1})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// Where the tables and the log of an engine are.
const (
	tables   = extentlogtest.Dir + "/log"
	segments = extentlogtest.Dir + "/ring"
)

func TestEngine_Conformance(t *testing.T) { extentlogtest.Run(t, open) }

func TestEngine_Crash(t *testing.T) { extentlogtest.RunCrash(t, open, 1) }

// TestEngine_CrashWhileItTurns appends many times what the ring has room for.
func TestEngine_CrashWhileItTurns(t *testing.T) { extentlogtest.RunCrash(t, open, 16) }

func TestEngine_Damage(t *testing.T) {
	extentlogtest.RunDamage(t, open, segments, ".seg")
	extentlogtest.RunDamage(t, open, tables, ".seg")
}

func TestEngine_TornTail(t *testing.T) { extentlogtest.RunTornTail(t, open, segments, ".seg") }

func TestEngine_Model(t *testing.T) { extentlogtest.RunModel(t, open) }

func TestEngine_Faults(t *testing.T) { extentlogtest.RunFaults(t, open, ".seg", errorfs.OpFileWriteAt) }

// BenchmarkEngine has a ring all of whose segments were used before: the first write of a block takes several times as
// long as a later one. Extents are removed when the next one begins, so that no segment has to be drained.
func BenchmarkEngine(b *testing.B) {
	const size = 1 << 30
	dir := b.TempDir()
	open := func(b *testing.B) extentlog.Log {
		e, err := extentlog.Open(dir, extentlog.Options{Store: "s1", Ring: size})
		if err != nil {
			b.Fatal(err)
		}
		return e
	}
	l := open(b)
	extentlogtest.Fill(b, l, size)
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	extentlogtest.RunBench(b, open)
}
