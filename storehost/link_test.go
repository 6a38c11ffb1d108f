package storehost

import (
	"testing"
	"time"

	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog"
	"github.com/columbamq/columba/storehost/extentlog/extentlogtest"
	"github.com/columbamq/columba/storehost/extentlog/memdisk"
	"github.com/columbamq/columba/wire"
)

// TestLink_OneStreamNeverBlocksOthers: hundreds of extents on one link, of which one sends much more than its window,
// one is read by somebody without credit, and one is read in bulk, on a slow disk. All others get their acks.
func TestLink_OneStreamNeverBlocksOthers(t *testing.T) {
	disk := memdisk.New()
	s := &testStore{t: t, self: "s1", dir: "unused", open: func(_ string, o extentlog.Options) (extentlog.Log, error) { return disk.Open(o) }}
	s.start()
	t.Cleanup(func() { s.stop() })
	l := s.dial()

	backlog, bw := extent("s1"), new(extentlogtest.Writer)
	b := l.openAppend(backlog)
	for range 8 {
		b.append(bw.Batch(1, 1<<20), 0)
	}
	b.awaitAck(bw.Last)
	b.sendPosition(wire.TypeCommitted, uint64(bw.Last))
	bulk, starved := l.openRead(backlog, 1, 1<<30), l.openRead(backlog, 1, 0)

	const quiet = 200
	var streams []*stream
	var writers []*extentlogtest.Writer
	for range quiet {
		streams = append(streams, l.openAppend(extent("s1")))
		writers = append(writers, new(extentlogtest.Writer))
	}
	heavy, hw := l.openAppend(extent("s1")), new(extentlogtest.Writer)
	disk.Slow(100 * time.Millisecond)
	for range 3 * extentlog.Window >> 20 {
		heavy.append(hw.Batch(1, 1<<20), 0)
	}
	for range 2 {
		for i, a := range streams {
			a.append(writers[i].Batch(1, 1000), 0)
		}
		for i, a := range streams {
			a.awaitAck(writers[i].Last)
		}
	}
	disk.Slow(0)
	bulk.readTo(1, bw.Last)
	starved.expect(wire.TypeReadCommitted, uint64(bw.Last))
	last := core.Seq(0)
	for {
		f := heavy.receive()
		if f.Type == wire.TypeRefused {
			if code := core.CodeOf(convert.FrameError(f.Body)); code != core.CodeThrottled {
				t.Fatalf("the flood was refused with %q, want %q", code, core.CodeThrottled)
			}
			break
		}
		v, err := wire.DecodePosition(f.Body)
		must(t, err)
		if last = core.Seq(v); last == hw.Last {
			t.Fatalf("all %d MiB of the flood were taken, the window is %d", hw.Last, extentlog.Window>>20)
		}
	}
	if last < extentlog.Window>>20-1 {
		t.Errorf("only %d MiB of the flood were acknowledged before it was refused", last)
	}
}

func TestLink_TellsTheWindow(t *testing.T) {
	s := startStore(t, "s1")
	a := s.dial().stream()
	a.sendProto(wire.TypeOpenAppend, openRequest(extent("s1")))
	if got := openedOf(t, a.receive()).Window; got != extentlog.Window {
		t.Fatalf("window %d, want %d", got, extentlog.Window)
	}
}
