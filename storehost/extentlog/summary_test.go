package extentlog

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"path"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog/ring"
	"github.com/columbamq/columba/wire"
)

// summedEvent is an entry of a summary.
type summedEvent struct {
	extent  core.ExtentID
	removed bool
	batch   wire.BatchHeader
	at      ring.Place
}

func eventsOf(g ring.Group) (all []summedEvent, err error) {
	err = readSummary(g, func(id core.ExtentID) { all = append(all, summedEvent{extent: id, removed: true}) }, func(l loggedBatch) {
		all = append(all, summedEvent{extent: l.extent, batch: wire.BatchHeader{Base: l.batch.Base, Count: l.batch.Count}, at: l.at})
	})
	return all, err
}

// TestSummary: what is noted is read back, in its order.
func TestSummary(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		var s summary
		s.reset()
		extents := make([]core.ExtentID, 1+random.IntN(10))
		next := make(map[core.ExtentID]core.Seq)
		for i := range extents {
			extents[i] = newExtent().ID
			next[extents[i]] = 1 + core.Seq(random.Uint64N(1<<40))
		}
		var want []summedEvent
		at := ring.Place{Serial: random.Uint64()}
		for range random.IntN(100) {
			x := extents[random.IntN(len(extents))]
			before := len(s.entries)
			switch random.IntN(10) {
			case 0:
				s.removed(x)
				next[x] = 1 // it may come back
				want = append(want, summedEvent{extent: x, removed: true})
			default:
				at.Offset += at.Length + uint32(random.IntN(5000))
				at.Length = 1 + uint32(random.IntN(1<<20))
				h := wire.BatchHeader{Base: next[x], Count: 1 + uint32(random.IntN(1000))}
				s.batch(x, h, at)
				next[x] = h.Last() + 1
				want = append(want, summedEvent{extent: x, batch: h, at: at})
			}
			if n := len(s.entries) - before; n > maxSummed {
				t.Fatalf("an entry has %d bytes, more than %d", n, maxSummed)
			}
		}
		got, err := eventsOf(ring.Group{Place: ring.Place{Serial: at.Serial}, Body: s.entries})
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%v\ngot  %v\nwant %v", err, got, want)
		}
	}
}

// FuzzSummary: bytes that are no summary are refused, or are the entries that they say.
func FuzzSummary(f *testing.F) {
	var s summary
	s.reset()
	x := newExtent().ID
	s.batch(x, wire.BatchHeader{Base: 7, Count: 3}, ring.Place{Offset: 88, Length: 100})
	s.removed(x)
	s.batch(x, wire.BatchHeader{Base: 1, Count: 1}, ring.Place{Offset: 200, Length: 10})
	f.Add(s.entries)
	f.Add([]byte{summedMore, 0, 0, 0, 0})
	f.Add(bytes.Repeat([]byte{255}, 40))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := eventsOf(ring.Group{Body: b})
		if err != nil {
			if core.CodeOf(err) != core.CodeCorrupt {
				t.Fatal(err)
			}
			return
		}
		var again summary
		again.reset()
		for _, e := range all {
			if e.removed {
				again.removed(e.extent)
				continue
			}
			if e.batch.Base == 0 || e.batch.Count == 0 || e.batch.Last() < e.batch.Base {
				t.Fatalf("an impossible batch: %+v", e)
			}
			again.batch(e.extent, e.batch, e.at)
		}
		if same, err := eventsOf(ring.Group{Body: again.entries}); err != nil || !slices.Equal(same, all) {
			t.Fatalf("written again: %v\n%v\n%v", err, same, all)
		}
	})
}

// TestOpen_ReadsSummaries: a start reads little of a log whose rows are in the database, and knows all that is in it.
func TestOpen_ReadsSummaries(t *testing.T) {
	read := new(atomic.Int64)
	disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileReadAt && path.Ext(op.Path) == ".seg" {
			read.Add(1)
		}
		return nil
	}))
	options := Options{Store: "s1", FS: disk, Log: slog.New(slog.DiscardHandler), Ring: 16 << 20}
	e, err := Open("store", options)
	must(t, err)
	extents, last := make([]core.Extent, 20), make([]wire.BatchHeader, 20)
	for i := range extents {
		extents[i] = newExtent()
		must(t, e.Open(extents[i]))
	}
	const rounds = 40
	for range rounds {
		for i, x := range extents {
			appendBatch(t, e, x, nextBatch(t, &last[i], 8<<10))
		}
	}
	must(t, removeTold(e, extents[0], 1))
	groups := int(e.journal.applied.Load()) + 1
	must(t, e.Close())
	read.Store(0)
	e, err = Open("store", options)
	must(t, err)
	t.Cleanup(func() { must(t, e.Close()) })
	if uses := e.journal.ring.Uses(); len(uses) < 5 {
		t.Fatalf("the log has %d segments, too few to be a test", len(uses))
	}
	// A group that is read whole takes two reads.
	if n := read.Load(); n > int64(groups) {
		t.Errorf("the start read %d times from a log of %d groups", n, groups)
	}
	for i, x := range extents[1:] {
		if v, err := e.Verify(t.Context(), x.ID); err != nil || !v.Sound {
			t.Errorf("extent %s: %+v, %v", x.ID, v, err)
		}
		if s, err := e.State(x.ID); err != nil || s.Last != last[i+1].Last() || s.Checksum != last[i+1].Checksum {
			t.Errorf("extent %s: %+v, %v; want it up to %d", x.ID, s, err, last[i+1].Last())
		}
	}
	if _, err := e.State(extents[0].ID); core.CodeOf(err) != core.CodeNotFound {
		t.Errorf("the removed extent: %v", err)
	}
}
