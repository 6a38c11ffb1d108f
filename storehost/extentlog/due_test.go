package extentlog

import (
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// timerBatch makes a batch that follows h, with a record of size bytes for each due time.
func timerBatch(t testing.TB, h *wire.BatchHeader, size int, due ...int64) []byte {
	t.Helper()
	b := make([]byte, wire.BatchHeaderLen)
	for _, at := range due {
		var err error
		if b, err = wire.AppendRecord(b, &wire.Record{DeliverAt: at, Payload: make([]byte, size)}); err != nil {
			t.Fatal(err)
		}
	}
	base := core.Seq(1)
	if h.Count > 0 {
		base = h.Last() + 1
	}
	*h = wire.BatchHeader{Count: uint32(len(due)), Base: base, Checksum: wire.ExtendChecksum(h.Checksum, b[wire.BatchHeaderLen:])}
	wire.PutBatchHeader(b, *h)
	return b
}

// TestDue_IndexIsMadeAnew takes parts of the index away, as if an earlier build had written the extent: it comes back
// from the batches.
func TestDue_IndexIsMadeAnew(t *testing.T) {
	disk := vfs.NewMem()
	e := newEngine(t, "store", disk)
	x := newExtent()
	x.Kind = core.KindTimer
	if err := e.Open(x); err != nil {
		t.Fatal(err)
	}
	const batches = 30
	var h wire.BatchHeader
	answers := make(chan error, batches)
	var ends []core.Seq
	for i := range int64(batches) { // more than a piece
		e.Append(x.ID, timerBatch(t, &h, 100<<10, 1000-i, i), 0, func(_ core.Seq, err error) { answers <- err })
		ends = append(ends, h.Last())
	}
	for range batches {
		if err := <-answers; err != nil {
			t.Fatal(err)
		}
	}
	all := func() (n int) {
		q := DueQuery{Until: math.MaxInt64, UpTo: h.Last(), MaxBytes: 1 << 20}
		last := DueKey{At: -1}
		for {
			run, err := e.Due(x.ID, q, func(r DueRecord) {
				if !r.Beyond(last) {
					t.Fatalf("%+v follows %+v", r.DueKey, last)
				}
				last = r.DueKey
				n++
			})
			if err != nil {
				t.Fatal(err)
			}
			if q.After, q.Start = run.Passed, run.Start; !run.More {
				return n
			}
		}
	}
	if n := all(); n != 2*batches {
		t.Fatalf("%d timers, want %d", n, 2*batches)
	}
	for what, indexed := range map[string]core.Seq{"missing": 0, "shorter": ends[7]} {
		spoil(t, e, x.ID, indexed)
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		e = newEngine(t, "store", disk)
		if n := all(); n != 2*batches {
			t.Errorf("%s: %d timers come back, want %d", what, n, 2*batches)
		}
		if got := e.extent(x.ID).indexed(); got != h.Last() {
			t.Errorf("%s: indexed up to %d, want %d", what, got, h.Last())
		}
	}
}

// spoil makes an index hold no more than the records up to a seq.
func spoil(t *testing.T, e *Engine, id core.ExtentID, indexed core.Seq) {
	t.Helper()
	iter, err := e.db.NewIter(&pebble.IterOptions{LowerBound: extentKey(prefixDue, id), UpperBound: afterExtent(prefixDue, id)})
	if err != nil {
		t.Fatal(err)
	}
	for iter.First(); iter.Valid(); iter.Next() {
		if key := iter.Key(); key[dueKeyLen-1] > byte(indexed) { // few enough for a byte
			if err := e.db.Delete(key, pebble.NoSync); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := iter.Close(); err != nil {
		t.Fatal(err)
	}
	value, err := e.meta(extentKey(prefixPosition, id))
	if err != nil {
		t.Fatal(err)
	}
	p, err := decodePosition(value)
	if err != nil {
		t.Fatal(err)
	}
	p.indexed = indexed
	p.put(value)
	if err := e.db.Set(extentKey(prefixPosition, id), value, pebble.NoSync); err != nil {
		t.Fatal(err)
	}
}

// TestDue_DamageIsMet flips a byte of the index: the extent is quarantined, and nothing of it is answered.
func TestDue_DamageIsMet(t *testing.T) {
	e := newEngine(t, "store", vfs.NewMem())
	x := newExtent()
	x.Kind = core.KindTimer
	if err := e.Open(x); err != nil {
		t.Fatal(err)
	}
	var h wire.BatchHeader
	answer := make(chan error, 1)
	e.Append(x.ID, timerBatch(t, &h, 10, 5), 1, func(_ core.Seq, err error) { answer <- err })
	if err := <-answer; err != nil {
		t.Fatal(err)
	}
	key := dueKey(x.ID, DueKey{5, 1})
	value, err := e.meta(key)
	if err != nil {
		t.Fatal(err)
	}
	value[len(value)-1] ^= 1
	if err := e.db.Set(key, value, pebble.NoSync); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := e.Due(x.ID, DueQuery{Until: 9, UpTo: 1, MaxBytes: 1}, func(r DueRecord) { t.Errorf("%+v is answered", r.DueKey) })
		if core.CodeOf(err) != core.CodeCorrupt {
			t.Errorf("got %v, want %s", err, core.CodeCorrupt)
		}
	}
	if s, err := e.State(x.ID); err != nil || !s.Damaged {
		t.Errorf("damaged %v, %v", s.Damaged, err)
	}
}

// BenchmarkDue reads records of 1 KiB in the order in which they are due, out of tables in which they lie in another.
func BenchmarkDue(b *testing.B) {
	const batches, each = 40, 500
	e, err := Open("store", Options{Store: "s1", FS: vfs.NewMem(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	x := newExtent()
	x.Kind = core.KindTimer
	if err := e.Open(x); err != nil {
		b.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	var h wire.BatchHeader
	answers := make(chan error, 1)
	for range batches {
		due := make([]int64, each)
		for i := range due {
			due[i] = random.Int64N(60_000)
		}
		e.Append(x.ID, timerBatch(b, &h, 1000, due...), 0, func(_ core.Seq, err error) { answers <- err })
		if err := <-answers; err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; {
		q := DueQuery{Until: 60_000, UpTo: h.Last(), MaxBytes: 512 << 10}
		for more := true; more && n < b.N; {
			run, err := e.Due(x.ID, q, func(r DueRecord) { n++ })
			if err != nil {
				b.Fatal(err)
			}
			q.After, q.Start, more = run.Passed, run.Start, run.More
		}
	}
}

// TestDue_WindowIsOfBatches keeps as many bytes of a timer extent waiting as an input host may: none is refused for its
// index.
func TestDue_WindowIsOfBatches(t *testing.T) {
	e := newEngine(t, "store", vfs.NewMem())
	x := newExtent()
	x.Kind = core.KindTimer
	if err := e.Open(x); err != nil {
		t.Fatal(err)
	}
	held, release := make(chan struct{}), make(chan struct{})
	var h wire.BatchHeader
	e.Append(x.ID, timerBatch(t, &h, 1, 5), 0, func(core.Seq, error) { close(held); <-release })
	<-held
	e.queue.window = 1 << 20
	const size, n = 64 << 10, 15
	answers := make(chan error, n)
	for range n {
		e.Append(x.ID, timerBatch(t, &h, size, 5), 0, func(_ core.Seq, err error) { answers <- err })
	}
	close(release)
	for range n {
		if err := <-answers; err != nil {
			t.Fatal(err)
		}
	}
}

// TestDue_RowsThatStayOpen reads messages in pieces while some rows have one that is due much later: each piece looks
// at those rows only of which the one before could not keep the bytes, and not at all that was passed since they began.
func TestDue_RowsThatStayOpen(t *testing.T) {
	oneAtATime(t)
	for _, every := range []int64{20, 5} {
		rowsThatStayOpen(t, every)
	}
}

// rowsThatStayOpen has one of so many rows stay open.
func rowsThatStayOpen(t *testing.T, every int64) {
	e := newEngine(t, "store", vfs.NewMem())
	x := newExtent()
	x.Kind = core.KindTimer
	if err := e.Open(x); err != nil {
		t.Fatal(err)
	}
	const batches, each, last = 400, 16, 400 + dueSpan
	var h wire.BatchHeader
	for i := range int64(batches) {
		due := slices.Repeat([]int64{i}, each)
		if i%every == 0 {
			due[each-1] = i + dueSpan - 1
		}
		appendBatch(t, e, x, timerBatch(t, &h, 2<<10, due...))
	}
	if err := e.db.Flush(); err != nil {
		t.Fatal(err)
	}
	looks := func() int64 { m := e.db.Metrics().BlockCache; return m.Hits + m.Misses }
	walk := func(most int) (pieces int, blocks int64) {
		before := looks()
		q := DueQuery{Until: last, UpTo: h.Last(), MaxBytes: most}
		at, n := DueKey{At: -1}, 0
		for more := true; more; pieces++ {
			run, err := e.Due(x.ID, q, func(r DueRecord) {
				if !r.Beyond(at) {
					t.Fatalf("%+v comes after %+v", r.DueKey, at)
				}
				at = r.DueKey
				n++
			})
			if err != nil {
				t.Fatal(err)
			}
			q.After, q.Start, more = run.Passed, run.Start, run.More
		}
		if n != batches*each {
			t.Fatalf("%d records came, want %d", n, batches*each)
		}
		return pieces, looks() - before
	}
	_, once := walk(math.MaxInt)
	looked := max(0, dueSpan/every+2-openHeld/dueRowSize) // rows
	for _, most := range []int{16 << 10, 512 << 10} {
		pieces, blocks := walk(most)
		t.Logf("%d pieces of up to %d bytes: %d blocks, %d at once", pieces, most, blocks, once)
		if limit := 2*once + int64(pieces)*(2*looked+4); blocks > limit {
			t.Errorf("%d blocks were looked at in %d pieces, want at most %d; %d at once", blocks, pieces, limit, once)
		}
	}
}

// TestDue_ManyAtOnce reads messages that are all due at the same time, in pieces: each piece goes on in the index where
// the one before ended, and does not look through all that was passed.
func TestDue_ManyAtOnce(t *testing.T) {
	oneAtATime(t)
	e := newEngine(t, "store", vfs.NewMem())
	x := newExtent()
	x.Kind = core.KindTimer
	if err := e.Open(x); err != nil {
		t.Fatal(err)
	}
	const batches, each, due = 100, 10, 1000
	var h wire.BatchHeader
	for range batches {
		appendBatch(t, e, x, timerBatch(t, &h, 2<<10, slices.Repeat([]int64{due}, each)...))
	}
	if err := e.db.Flush(); err != nil {
		t.Fatal(err)
	}
	looks := func() int64 { m := e.db.Metrics().BlockCache; return m.Hits + m.Misses }
	walk := func(most int) (n, pieces int, blocks int64) {
		before := looks()
		q := DueQuery{Until: due, UpTo: h.Last(), MaxBytes: most}
		for more := true; more; pieces++ {
			run, err := e.Due(x.ID, q, func(DueRecord) { n++ })
			if err != nil {
				t.Fatal(err)
			}
			q.After, q.Start, more = run.Passed, run.Start, run.More
		}
		return n, pieces, looks() - before
	}
	n, _, once := walk(math.MaxInt)
	if n != batches*each {
		t.Fatalf("%d records came", n)
	}
	n, pieces, blocks := walk(32 << 10)
	if n != batches*each || pieces < batches/2 {
		t.Fatalf("%d records came in %d pieces", n, pieces)
	}
	if most := 3*once + 8*int64(pieces); blocks > most {
		t.Errorf("%d blocks were looked at in %d pieces, %d at once", blocks, pieces, once)
	}
}
