// Package extentlogtest owns the suites that every engine of extentlog must pass: conformance, crashes, a model.
package extentlogtest

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog"
	"github.com/columbamq/columba/wire"
)

// Dir is where the suites put the log on a file system they made.
const Dir = "store"

// OpenFunc opens the engine under test in Dir of fs, each time as a new run of the store "s1".
type OpenFunc func(fs vfs.FS) (extentlog.Log, error)

// Extent makes a tuple with an id of its own.
func Extent() core.Extent {
	now := time.Now()
	return core.Extent{
		ID: core.ExtentID{ID: core.NewID(now)}, Queue: core.QueueID{ID: core.NewID(now)}, Kind: core.KindLog,
		Durability: core.DurabilityFsync, Input: "in1", InputRun: core.RunID{ID: core.NewID(now)},
		Token: core.WriterToken{ID: core.NewID(now)}, Replicas: []core.HostID{"s1"},
	}
}

// Writer makes the batches of one extent as its input host would.
type Writer struct {
	Last     core.Seq
	Checksum uint32
	Time     int64 // append time of the last batch; each batch is 1000 µs later
}

// Batch makes the next batch: count records with payloads of size bytes.
func (w *Writer) Batch(count, size int) []byte {
	payload := make([]byte, size)
	b := make([]byte, wire.BatchHeaderLen, wire.BatchHeaderLen+count*(wire.RecordHeaderLen+size))
	for i := range count {
		if size >= 8 {
			binary.LittleEndian.PutUint64(payload, uint64(w.Last)+uint64(i)+1)
		}
		var err error
		if b, err = wire.AppendRecord(b, &wire.Record{Payload: payload}); err != nil {
			panic(err) // the record is made here
		}
	}
	w.finish(b, count)
	return b
}

// finish writes the header before count records.
func (w *Writer) finish(b []byte, count int) {
	w.Time += 1000
	w.Checksum = wire.ExtendChecksum(w.Checksum, b[wire.BatchHeaderLen:])
	wire.PutBatchHeader(b, wire.BatchHeader{Count: uint32(count), Base: w.Last + 1, AppendTime: w.Time, Checksum: w.Checksum})
	w.Last += core.Seq(count)
}

// TimerExtent makes the tuple of an extent of timers.
func TimerExtent() core.Extent {
	e := Extent()
	e.Kind = core.KindTimer
	return e
}

// Timers makes the next batch: a record with a payload of size bytes for each due time, unix ms.
func (w *Writer) Timers(size int, due ...int64) []byte {
	payload := make([]byte, size)
	b := make([]byte, wire.BatchHeaderLen)
	for i, at := range due {
		if size >= 8 {
			binary.LittleEndian.PutUint64(payload, uint64(w.Last)+uint64(i)+1)
		}
		var err error
		if b, err = wire.AppendRecord(b, &wire.Record{DeliverAt: at, Payload: payload}); err != nil {
			panic(err) // the record is made here
		}
	}
	w.finish(b, len(due))
	return b
}

// Append appends and waits for the answer.
func Append(l extentlog.Log, id core.ExtentID, batch []byte, committed core.Seq) (core.Seq, error) {
	type answer struct {
		durable core.Seq
		err     error
	}
	ch := make(chan answer, 1)
	l.Append(id, batch, committed, func(durable core.Seq, err error) { ch <- answer{durable, err} })
	a := <-ch
	return a.durable, a.err
}

// ReadAll reads everything up to upTo and checks that it is whole: no gaps, sound records, a right rolling checksum.
func ReadAll(t testing.TB, l extentlog.Log, id core.ExtentID, upTo core.Seq, maxBytes int) []byte {
	t.Helper()
	var out []byte
	var last core.Seq
	var sum uint32
	for last < upTo {
		b, err := l.Read(id, last+1, upTo, maxBytes)
		if err != nil {
			t.Fatalf("read from %d: %v", last+1, err)
		}
		if len(b) == 0 {
			return out
		}
		out = append(out, b...)
		for len(b) > 0 {
			batch, rest, err := wire.NextBatch(b)
			if err != nil {
				t.Fatalf("read from %d: %v", last+1, err)
			}
			if _, err := wire.CheckRecords(batch.Records, wire.MaxPayload); err != nil {
				t.Fatalf("batch %d: %v", batch.Base, err)
			}
			if sum = wire.ExtendChecksum(sum, batch.Records); batch.Base != last+1 || batch.Checksum != sum {
				t.Fatalf("batch %d..%d with checksum %08x follows %d, computed %08x", batch.Base, batch.Last(), batch.Checksum, last, sum)
			}
			last, b = batch.Last(), rest
		}
	}
	return out
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t testing.TB, err error, code core.Code) {
	t.Helper()
	if core.CodeOf(err) != code {
		t.Fatalf("got error %v (%q), want code %q", err, core.CodeOf(err), code)
	}
}

// span is the first and the last seq of a run of batches; zeros for none.
func span(t testing.TB, b []byte) (first, last core.Seq) {
	t.Helper()
	for len(b) > 0 {
		batch, rest, err := wire.NextBatch(b)
		must(t, err)
		if first == 0 {
			first = batch.Base
		}
		last, b = batch.Last(), rest
	}
	return first, last
}
