package extentlog

import (
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// readMeter counts what is read of tables.
type readMeter struct {
	vfs.FS
	bytes atomic.Int64
}

func (m *readMeter) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := m.FS.Open(name, opts...)
	if err != nil || filepath.Ext(name) != ".sst" {
		return f, err
	}
	return &meteredFile{f, m}, nil
}

type meteredFile struct {
	vfs.File
	m *readMeter
}

func (f *meteredFile) ReadAt(p []byte, at int64) (int, error) {
	n, err := f.File.ReadAt(p, at)
	f.m.bytes.Add(int64(n))
	return n, err
}

// largeBatches is the size of batches of which a table holds few.
const largeBatches = 120 << 10

// backlog writes batches of up to size bytes of several extents in turn and flushes after each round, so that every
// table has a part of each.
func backlog(t testing.TB, e *Engine, extents, rounds, size int) ([]core.Extent, []wire.BatchHeader) {
	t.Helper()
	all, heads := make([]core.Extent, extents), make([]wire.BatchHeader, extents)
	for i := range all {
		all[i] = newExtent()
		if err := e.Open(all[i]); err != nil {
			t.Fatal(err)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range rounds {
		for i, x := range all {
			for range 3 {
				appendBatch(t, e, x, nextBatch(t, &heads[i], size/6+random.IntN(size-size/6)))
			}
		}
		drainAll(t, e)
	}
	return all, heads
}

// TestRead_LoadsWhatItNeeds reads extents that are spread over many tables in pieces: a batch at the end of each piece
// may be loaded in vain, none in every table.
func TestRead_LoadsWhatItNeeds(t *testing.T) {
	meter := &readMeter{FS: vfs.NewMem()}
	e := newEngine(t, "store", meter)
	all, heads := backlog(t, e, 4, 12, largeBatches)
	before, got := meter.bytes.Load(), 0
	for i, x := range all {
		for next := core.Seq(1); next <= heads[i].Last(); {
			n, to := readPiece(t, e, x, next, heads[i].Last(), 256<<10)
			got, next = got+n, to
		}
	}
	if loaded := meter.bytes.Load() - before; loaded > 3*int64(got) {
		t.Errorf("%d bytes were loaded to read %d", loaded, got)
	}
}
