package selection

import (
	"bytes"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
	"github.com/columbamq/columba/wire"
)

// stored is an extent of dead letters as its batches: letter seq has seq%7 attempts.
func stored(t *rapid.T) (batches []byte, last core.Seq) {
	at := int64(1000)
	for range rapid.IntRange(0, 8).Draw(t, "batches") {
		var records []byte
		n := rapid.IntRange(1, 5).Draw(t, "records")
		for i := range n {
			var err error
			seq := last + core.Seq(i) + 1
			records, err = wire.AppendRecord(records, &wire.Record{
				ID: core.MessageID{ID: core.ID{byte(seq), 1}}, Attempts: uint16(seq % 7), ReasonCode: []byte("nack"), Payload: []byte{byte(seq)},
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		header := make([]byte, wire.BatchHeaderLen)
		at += rapid.Int64Range(-500, 500).Draw(t, "time")
		wire.PutBatchHeader(header, wire.BatchHeader{Base: last + 1, Count: uint32(n), AppendTime: at})
		batches = append(append(batches, header...), records...)
		last += core.Seq(n)
	}
	return batches, last
}

// through has filters take the batches, a new one wherever cut says so, and answers what all of them made.
func through(t *rapid.T, batches []byte, removed *acklevel.Window, s core.Selection, from Position, cut func() bool) (out []byte, at Position, matched acklevel.Window, looked uint64) {
	filter := Filter{Selection: s, Removed: removed, At: from}
	flush := func() {
		out, looked = append(out, filter.Out...), looked+filter.Looked
		matched.Merge(&filter.Matched)
		filter = Filter{Selection: s, Removed: removed, At: filter.At}
	}
	for len(batches) > 0 {
		b, rest, err := wire.NextBatch(batches)
		if err != nil {
			t.Fatal(err)
		}
		if err := filter.Batch(b); err != nil {
			t.Fatal(err)
		}
		if batches = rest; cut() {
			flush()
		}
	}
	flush()
	return out, filter.At, matched, looked
}

// TestFilter_Properties: what comes out is what fits, in order, as batches that continue each other, the same wherever
// the work is cut.
func TestFilter_Properties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		batches, last := stored(t)
		var removed acklevel.Window
		for _, seq := range rapid.SliceOfN(rapid.Uint64Range(1, 40), 0, 10).Draw(t, "removed") {
			removed.Ack(core.Seq(seq))
		}
		s := core.Selection{MinAttempts: rapid.IntRange(0, 4).Draw(t, "min")}
		from := Position{Last: 7, Checksum: 42, AppendTime: 900}
		out, at, matched, looked := through(t, batches, &removed, s, from, func() bool { return false })
		again, at2, matched2, looked2 := through(t, batches, &removed, s, from, func() bool { return rapid.Bool().Draw(t, "cut") })
		a, _ := matched.Append(nil)
		b, _ := matched2.Append(nil)
		if !bytes.Equal(out, again) || at != at2 || !bytes.Equal(a, b) || looked != looked2 {
			t.Fatal("cut in pieces it makes something else")
		}
		var got []core.Seq
		end := from
		for rest := out; len(rest) > 0; {
			batch, more, err := wire.NextBatch(rest)
			if err != nil {
				t.Fatal(err)
			}
			if batch.Base != end.Last+1 || batch.Checksum != wire.ExtendChecksum(end.Checksum, batch.Records) || batch.AppendTime < end.AppendTime {
				t.Fatalf("batch %+v does not continue %+v", batch.BatchHeader, end)
			}
			n, err := wire.CheckRecords(batch.Records, wire.MaxPayload)
			if err != nil || n != int(batch.Count) {
				t.Fatalf("%d records of %d, %v", n, batch.Count, err)
			}
			for records := batch.Records; len(records) > 0; {
				var r wire.Record
				n, err := wire.DecodeRecord(records, &r)
				if err != nil {
					t.Fatal(err)
				}
				got, records = append(got, core.Seq(r.Payload[0])), records[n:]
			}
			end, rest = Position{batch.Last(), batch.Checksum, batch.AppendTime}, more
		}
		if end != at {
			t.Fatalf("it ends at %+v, and says %+v", end, at)
		}
		i, there := 0, uint64(0)
		for seq := core.Seq(1); seq <= last; seq++ {
			fits := !removed.Done(seq) && int(seq%7) >= s.MinAttempts
			if !removed.Done(seq) {
				there++
			}
			if matched.Done(seq) != fits {
				t.Fatalf("seq %d fits: %v", seq, fits)
			}
			if fits {
				if i >= len(got) || got[i] != seq {
					t.Fatalf("seq %d is not copied as number %d of %v", seq, i+1, got)
				}
				i++
			}
		}
		if i != len(got) || looked != there {
			t.Fatalf("%d of %d are copied, %d of %d were looked at", len(got), i, looked, there)
		}
	})
}

// TestFilter_Ages: the time of its batch is since when a letter is dead.
func TestFilter_Ages(t *testing.T) {
	records, err := wire.AppendRecord(nil, &wire.Record{Payload: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	s := Filter{Selection: core.Selection{DeadBefore: time.UnixMicro(20)}, Removed: &acklevel.Window{}}
	for i, at := range []int64{19, 20, 10} {
		if err := s.Batch(wire.Batch{BatchHeader: wire.BatchHeader{Base: core.Seq(i + 1), Count: 1, AppendTime: at}, Records: records}); err != nil {
			t.Fatal(err)
		}
	}
	if !s.Matched.Done(1) || s.Matched.Done(2) || !s.Matched.Done(3) || s.At.Last != 2 || s.At.AppendTime != 19 {
		t.Errorf("got %+v", s.At)
	}
	if err := s.Batch(wire.Batch{BatchHeader: wire.BatchHeader{Base: 4, Count: 1}, Records: append([]byte(nil), records[:len(records)-1]...)}); err == nil {
		t.Error("a record that is cut off is taken")
	}
}

// TestBehind: a replica that has a part already is given the rest, and one that has something else is not.
func TestBehind(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		batches, _ := stored(t)
		out, at, _, _ := through(t, batches, &acklevel.Window{}, core.Selection{}, Position{}, func() bool { return false })
		sum := uint32(0)
		for rest := out; len(rest) > 0; {
			b, more, err := wire.NextBatch(rest)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := behind(out, Position{Last: b.Base - 1, Checksum: sum}); err != nil || !bytes.Equal(got, rest) {
				t.Fatalf("behind %d: %d bytes of %d, %v", b.Base-1, len(got), len(rest), err)
			}
			if b.Base > 1 {
				if _, err := behind(more, Position{Last: b.Base - 2}); err == nil && len(more) > 0 {
					t.Fatal("a gap is taken")
				}
				if _, err := behind(out, Position{Last: b.Base - 1, Checksum: sum + 1}); core.CodeOf(err) != core.CodeCorrupt {
					t.Fatalf("it has something else up to %d: %v", b.Base-1, err)
				}
			}
			sum, rest = b.Checksum, more
		}
		if len(out) > 0 {
			if got, err := behind(out, at); err != nil || len(got) > 0 {
				t.Fatalf("it has all, and is given %d bytes, %v", len(got), err)
			}
			if _, err := behind(out, Position{Last: at.Last, Checksum: at.Checksum + 1}); core.CodeOf(err) != core.CodeCorrupt {
				t.Fatalf("it has something else: %v", err)
			}
		}
	})
}
