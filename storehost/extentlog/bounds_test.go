package extentlog

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

func newEngine(t *testing.T, dir string, disk vfs.FS) *Engine {
	t.Helper()
	e, err := Open(dir, Options{Store: "s1", FS: disk, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func newExtent() core.Extent {
	return core.Extent{ID: core.ExtentID{ID: core.NewID(time.Now())}, Kind: core.KindLog, Replicas: []core.HostID{"s1"}}
}

// nextBatch makes a batch of one record with size bytes of payload that follows h.
func nextBatch(t testing.TB, h *wire.BatchHeader, size int) []byte {
	t.Helper()
	return recordsBatch(t, h, 1, size)
}

// appendBatch returns when the batch is durable.
func appendBatch(t testing.TB, e *Engine, x core.Extent, batch []byte) {
	t.Helper()
	done := make(chan error, 1)
	e.Append(x.ID, batch, 0, func(_ core.Seq, err error) { done <- err })
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// recordsBatch makes one of some records.
func recordsBatch(t testing.TB, h *wire.BatchHeader, records, size int) []byte {
	t.Helper()
	b := make([]byte, wire.BatchHeaderLen)
	for range records {
		var err error
		if b, err = wire.AppendRecord(b, &wire.Record{Payload: make([]byte, size)}); err != nil {
			t.Fatal(err)
		}
	}
	base := h.Last() + 1
	if h.Count == 0 {
		base = 1
	}
	*h = wire.BatchHeader{Count: uint32(records), Base: base, Checksum: wire.ExtendChecksum(h.Checksum, b[wire.BatchHeaderLen:])}
	wire.PutBatchHeader(b, *h)
	return b
}

func TestEngine_ThrottlesInOrder(t *testing.T) {
	e := newEngine(t, "store", vfs.NewMem())
	x := newExtent()
	if err := e.Open(x); err != nil {
		t.Fatal(err)
	}
	// The log is held in an answer, so that what follows waits.
	held, release := make(chan struct{}), make(chan struct{})
	var h wire.BatchHeader
	e.Append(x.ID, nextBatch(t, &h, 1), 0, func(core.Seq, error) { close(held); <-release })
	<-held
	e.queue.limit = 1 << 20
	const size, n = 16 << 10, 80
	answers := make(chan error, n)
	for range n {
		e.Append(x.ID, nextBatch(t, &h, size), 0, func(_ core.Seq, err error) { answers <- err })
	}
	close(release)
	stored, throttled := 0, 0
	for range n {
		err := <-answers
		switch {
		case err == nil && throttled == 0:
			stored++
		case core.CodeOf(err) == core.CodeThrottled:
			throttled++
		default:
			t.Fatalf("after %d stored and %d throttled: %v", stored, throttled, err)
		}
	}
	if want := e.queue.limit / (size + 100); stored < want-1 || stored > want+1 {
		t.Fatalf("%d batches were taken, want about %d", stored, want)
	}
}

// TestEngine_FairShare: no extent has more than its window waiting, and while much waits, busy extents are refused
// before quiet ones.
func TestEngine_FairShare(t *testing.T) {
	e := newEngine(t, "store", vfs.NewMem())
	newOpen := func() core.ExtentID {
		x := newExtent()
		if err := e.Open(x); err != nil {
			t.Fatal(err)
		}
		return x.ID
	}
	const window, share, size = 1 << 20, 1 << 16, 1 << 14
	const half = 2 * window
	e.queue.limit, e.queue.window, e.queue.share = 2*half, window, share
	busy := []core.ExtentID{newOpen(), newOpen(), newOpen()}
	quiet := make([]core.ExtentID, 100)
	for i := range quiet {
		quiet[i] = newOpen()
	}
	// The log is held in an answer, so that what follows waits.
	held, release := make(chan struct{}), make(chan struct{})
	e.Append(newOpen(), nextBatch(t, new(wire.BatchHeader), 1), 0, func(core.Seq, error) { close(held); <-release })
	<-held
	var taken, refused atomic.Int64
	var answered sync.WaitGroup
	flood := func(id core.ExtentID, bytes int) {
		var h wire.BatchHeader
		for range max(bytes/size, 1) {
			answered.Add(1)
			e.Append(id, nextBatch(t, &h, size-100), 0, func(_ core.Seq, err error) {
				defer answered.Done()
				switch {
				case err == nil:
					taken.Add(int64(size))
				case core.CodeOf(err) == core.CodeThrottled:
					refused.Add(int64(size))
				default:
					t.Error(err)
				}
			})
		}
	}
	for _, id := range busy {
		flood(id, window+window/4)
	}
	for _, id := range quiet {
		flood(id, size)
	}
	close(release)
	answered.Wait()
	quietBytes := int64(len(quiet) * size)
	// Two busy ones fill their windows, that is half of all; the third gets its fair share, and the quiet ones all they
	// want.
	want := half + share + quietBytes
	if got := taken.Load(); got < want-2*share || got > want+2*share {
		t.Fatalf("%d KiB were taken and %d refused, want about %d taken", got>>10, refused.Load()>>10, want>>10)
	}
	newOpen() // the rounds before have been settled to their ends
	e.queue.mu.Lock()
	left := e.queue.mu.bytes
	e.queue.mu.Unlock()
	if left != 0 {
		t.Fatalf("%d bytes still count as waiting", left)
	}
}

func TestTails_Bounded(t *testing.T) {
	e := newEngine(t, "store", vfs.NewMem())
	all := e.tails
	all.limit, all.each = maxTailsBytes/32, maxTailBytes/32
	var xs []*tail
	for range 6 {
		x := new(tail)
		xs = append(xs, x)
		var h wire.BatchHeader
		for range 40 {
			x.add(nextBatch(t, &h, 32<<10), all)
		}
		if b, ok := x.read(h.Base, h.Base, 1); !ok || len(b) == 0 {
			t.Fatal("the newest batch is not in the tail")
		}
		if b, ok := x.read(1, h.Base, 1); ok {
			t.Fatalf("the oldest batch is still there, %d bytes", len(b))
		}
	}
	sum := 0
	for _, x := range xs {
		for _, c := range x.mu.chunks {
			sum += cap(c.bytes)
		}
	}
	if sum != all.mu.bytes || sum > all.limit || sum < all.limit/2 {
		t.Fatalf("tails hold %d bytes and count %d; the bound is %d", sum, all.mu.bytes, all.limit)
	}
	all.sweep(time.Now().Add(tailIdle + time.Minute))
	if all.mu.bytes != 0 || len(all.mu.chunks) != 0 {
		t.Fatalf("idle tails keep %d bytes", all.mu.bytes)
	}
}

func TestTail_Unbroken(t *testing.T) {
	all, x := &tails{limit: maxTailsBytes, each: maxTailBytes}, new(tail)
	var h wire.BatchHeader
	x.add(nextBatch(t, &h, 10), all)
	nextBatch(t, &h, 10) // came while nobody followed
	x.add(nextBatch(t, &h, 10), all)
	if b, ok := x.read(1, 3, 1000); ok {
		t.Fatalf("a broken tail answered %d bytes", len(b))
	}
	if b, ok := x.read(3, 3, 1000); !ok || len(b) == 0 {
		t.Fatal("seq 3 is not in the tail")
	}
	x.drop(all)
	if all.mu.bytes != 0 {
		t.Fatalf("%d bytes are counted after drop", all.mu.bytes)
	}
}

func TestEngine_RemoveGivesSpaceBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	e := newEngine(t, dir, nil)
	var extents []core.Extent
	for range 3 {
		x := newExtent()
		if err := e.Open(x); err != nil {
			t.Fatal(err)
		}
		extents = append(extents, x)
		var h wire.BatchHeader
		for range 10 {
			appendBatch(t, e, x, nextBatch(t, &h, 1<<20))
		}
	}
	drainAll(t, e)
	if size := tableBytes(t, dir); size < 30<<20 {
		t.Fatalf("30 MiB were appended, the tables hold %d", size)
	}
	for _, x := range extents {
		if err := removeTold(e, x, 1); err != nil {
			t.Fatal(err)
		}
	}
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	deadline := time.After(20 * time.Second)
	for size := tableBytes(t, dir); size > 1<<20; size = tableBytes(t, dir) {
		select {
		case <-look.C:
		case <-deadline:
			t.Fatalf("the tables still hold %d bytes", size)
		}
	}
}

// tableBytes is the size of all tables.
func tableBytes(t *testing.T, dir string) (sum int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".sst") {
			return ignoreGone(err)
		}
		info, err := d.Info()
		if err == nil {
			sum += info.Size()
		}
		return ignoreGone(err)
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// ignoreGone: tables vanish while they are counted.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func TestLayout_Golden(t *testing.T) {
	id := core.ExtentID{ID: core.ID{1, 2, 3, 15: 0xff}}
	written := make([]byte, positionLen)
	position{last: 1, committed: 2, bytes: 3, checksum: 4}.put(written)
	for name, c := range map[string]struct{ got, want []byte }{
		"batch key":    {batchKey(id, 258), append(append([]byte{'e'}, id.ID[:]...), 0, 0, 0, 0, 0, 0, 1, 2)},
		"after extent": {afterExtent('e', id), []byte{'e', 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0}},
		"position": {
			written,
			[]byte{1, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0},
		},
	} {
		if !bytes.Equal(c.got, c.want) {
			t.Errorf("%s: got % x, want % x", name, c.got, c.want)
		}
	}
	r := row{Extent: newExtent(), Opened: true, Fenced: true, Sealed: true, L: 5, SealSum: 6}
	b, err := r.encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := decodeRow(b)
	if err != nil || !cmp.Equal(back, r) {
		t.Fatalf("%v\n%s", err, cmp.Diff(r, back))
	}
	for _, bad := range [][]byte{nil, {rowVersion + 1}, {rowVersion, '{'}} {
		if _, err := decodeRow(bad); core.CodeOf(err) != core.CodeCorrupt {
			t.Errorf("row % x: %v, want %q", bad, err, core.CodeCorrupt)
		}
		if _, err := decodePosition(bad); core.CodeOf(err) != core.CodeCorrupt {
			t.Errorf("position % x: %v, want %q", bad, err, core.CodeCorrupt)
		}
	}
}

// TestEngine_AwaitRoom holds the log while more than half of what may wait does: whoever asks waits until less does.
func TestEngine_AwaitRoom(t *testing.T) {
	e := newEngine(t, "store", vfs.NewMem())
	x := newExtent()
	if err := e.Open(x); err != nil {
		t.Fatal(err)
	}
	e.AwaitRoom(t.Context()) // nothing waits
	held, release := make(chan struct{}), make(chan struct{})
	var h wire.BatchHeader
	e.Append(x.ID, nextBatch(t, &h, 1), 0, func(core.Seq, error) { close(held); <-release })
	<-held
	e.queue.limit = 1 << 20
	stored := make(chan error, 40)
	for range cap(stored) {
		e.Append(x.ID, nextBatch(t, &h, 16<<10), 0, func(_ core.Seq, err error) { stored <- err })
	}
	if e.queue.crowded() == nil {
		t.Fatal("more than half of what may wait does, and there is room")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e.AwaitRoom(ctx) // does not wait for ever
	room := make(chan int, 1)
	go func() {
		e.AwaitRoom(t.Context())
		room <- len(stored)
	}()
	close(release)
	if n := <-room; n == 0 {
		t.Error("there is room before anything was stored")
	}
	for range cap(stored) {
		if err := <-stored; err != nil {
			t.Fatal(err)
		}
	}
}

// removeTold removes an extent as controllers do: it is fenced, and told its end with the version that decided the
// removal.
func removeTold(l Log, e core.Extent, version uint64) error {
	s, err := l.Fence(e, version)
	if err != nil {
		return err
	}
	if err := l.Seal(e.ID, s.Last, s.Checksum, version); err != nil && core.CodeOf(err) != core.CodeConflict && core.CodeOf(err) != core.CodeIncomplete {
		return err
	}
	return l.Remove(e.ID, version)
}
