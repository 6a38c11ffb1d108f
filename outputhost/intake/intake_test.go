package outputhost

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

// TestNextBatch_Expiries reads two batches in a row; one of them has a record that expires.
func TestNextBatch_Expiries(t *testing.T) {
	stored := appendBatch(t, appendBatch(t, nil, 1, 0, 7, 0), 4, 0)
	_, first, rest, err := nextBatch(stored)
	if err != nil {
		t.Fatal(err)
	}
	_, second, rest, err := nextBatch(rest)
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
