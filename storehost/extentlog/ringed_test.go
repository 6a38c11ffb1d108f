package extentlog_test

import (
	"log/slog"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/columbamq/columba/storehost/extentlog"
	"github.com/columbamq/columba/storehost/extentlog/extentlogtest"
)

// ringed opens a log with the smallest ring there is: what tests append goes round in it.
func ringed(fs vfs.FS) (extentlog.Log, error) {
	e, err := extentlog.Open(extentlogtest.Dir, extentlog.Options{Store: "s1", FS: fs, Log: slog.New(slog.DiscardHandler), Ring: 1})
	if err != nil {
		return nil, err
	}
	return e, nil
}

func TestRing_Conformance(t *testing.T) { extentlogtest.Run(t, ringed) }

func TestRing_Crash(t *testing.T) { extentlogtest.RunCrash(t, ringed, 1) }

// TestRing_CrashWhileItTurns appends many times what the ring has room for.
func TestRing_CrashWhileItTurns(t *testing.T) { extentlogtest.RunCrash(t, ringed, 16) }

func TestRing_Model(t *testing.T) { extentlogtest.RunModel(t, ringed) }

func TestRing_Faults(t *testing.T) { extentlogtest.RunFaults(t, ringed, ".seg", errorfs.OpFileWriteAt) }

// segments is where the log is.
const segments = extentlogtest.Dir + "/ring"

func TestRing_Damage(t *testing.T) {
	extentlogtest.RunDamage(t, ringed, segments, ".seg")
	extentlogtest.RunDamage(t, ringed, files, ".seg")
}

func TestRing_TornTail(t *testing.T) { extentlogtest.RunTornTail(t, ringed, segments, ".seg") }

// BenchmarkRing has a ring all of whose segments were used before: the first write of a block takes several times as
// long as a later one. Extents are removed when the next one begins, so that no segment has to be drained.
func BenchmarkRing(b *testing.B) {
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
