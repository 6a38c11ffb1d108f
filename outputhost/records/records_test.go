package records

import (
	"slices"
	"testing"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// appendBatch appends a batch of records that expire at these times.
func appendBatch(t *testing.T, stored []byte, base core.Seq, expire ...int64) []byte {
	t.Helper()
	var records []byte
	for _, at := range expire {
		var err error
		if records, err = wire.AppendRecord(records, &wire.Record{Payload: []byte("x"), ExpireAt: at}); err != nil {
			t.Fatal(err)
		}
	}
	header := make([]byte, wire.BatchHeaderLen)
	wire.PutBatchHeader(header, wire.BatchHeader{Base: base, Count: uint32(len(expire)), AppendTime: 5})
	return slices.Concat(stored, header, records)
}

// TestBatch_Expiries reads two batches in a row; one of them has a record that expires.
func TestBatch_Expiries(t *testing.T) {
	stored := appendBatch(t, appendBatch(t, nil, 1, 0, 7, 0), 4, 0)
	_, first, rest, err := Batch(stored)
	if err != nil {
		t.Fatal(err)
	}
	_, second, rest, err := Batch(rest)
	if err != nil || len(rest) > 0 {
		t.Fatalf("%d bytes are left, %v", len(rest), err)
	}
	if !slices.Equal(first.Expire, []int64{0, 7, 0}) || first.Base != 1 || len(first.Offsets) != 4 || first.Enqueued != 5 {
		t.Errorf("got %+v", first)
	}
	if second.Expire != nil || second.Base != 4 || len(second.Offsets) != 2 {
		t.Errorf("got %+v", second)
	}
}

// TestBatch_IDs reads a batch in which records with only an id stand beside one that expires, and refuses it with a
// damaged byte anywhere in those records.
func TestBatch_IDs(t *testing.T) {
	var records []byte
	for i, at := range []int64{0, 7, 0} {
		r := wire.Record{Payload: []byte("x"), ExpireAt: at}
		r.ID.ID = core.ID{byte(i + 1)}
		var err error
		if records, err = wire.AppendRecord(records, &r); err != nil {
			t.Fatal(err)
		}
	}
	stored := make([]byte, wire.BatchHeaderLen, wire.BatchHeaderLen+len(records))
	wire.PutBatchHeader(stored, wire.BatchHeader{Base: 1, Count: 3})
	stored = append(stored, records...)
	_, got, rest, err := Batch(stored)
	if err != nil || len(rest) > 0 || len(got.Offsets) != 4 || !slices.Equal(got.Expire, []int64{0, 7, 0}) {
		t.Fatalf("got %+v, %d bytes are left, %v", got, len(rest), err)
	}
	for i := wire.BatchHeaderLen; i < len(stored); i++ {
		stored[i] ^= 1
		if _, _, _, err := Batch(stored); err == nil {
			t.Errorf("a batch with a damaged byte %d is taken", i)
		}
		stored[i] ^= 1
	}
}

// timers are the records of a due frame, and its body.
func timers(t *testing.T) *wire.Due {
	t.Helper()
	d := &wire.Due{Entries: []wire.DueEntry{{Seq: 9, Enqueued: 90}, {Seq: 2, Enqueued: 20}, {Seq: 3, Enqueued: 30}}}
	for _, r := range []wire.Record{{DeliverAt: 5, Payload: []byte("nine")}, {Payload: []byte("2"), ExpireAt: 7}, {DeliverAt: 6}} {
		var err error
		if d.Records, err = wire.AppendRecord(d.Records, &r); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func TestDue_Times(t *testing.T) {
	d := timers(t)
	got, err := Due(d.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Seqs, []core.Seq{9, 2, 3}) || !slices.Equal(got.DeliverAt, []int64{5, 0, 6}) ||
		!slices.Equal(got.Enqueued, []int64{90, 20, 30}) || !slices.Equal(got.Expire, []int64{0, 7, 0}) {
		t.Errorf("got %+v", got)
	}
	if len(got.Offsets) != 4 || int(got.Offsets[3]) != len(d.Records) || !slices.Equal(got.Bytes, d.Records) {
		t.Errorf("offsets %v of %d bytes", got.Offsets, len(d.Records))
	}
}

func TestDue_Refuses(t *testing.T) {
	whole := timers(t).Append(nil)
	damaged := slices.Clone(whole)
	damaged[len(damaged)-1] ^= 1
	for what, body := range map[string][]byte{"a damaged record": damaged, "a record cut off": whole[:len(whole)-1], "bytes behind": append(slices.Clone(whole), 0)} {
		if _, err := Due(body); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
}
