package wire

import (
	"bytes"
	"hash/crc32"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/columbamq/columba/core"
)

func TestNextBatch_SplitsRuns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var run []byte
		var want [][]byte
		next := core.Seq(1)
		for range rapid.IntRange(1, 4).Draw(t, "batches") {
			records := drawEncoded(t)
			count, err := CheckRecords(records, MaxPayload)
			if err != nil {
				t.Fatal(err)
			}
			b := make([]byte, BatchHeaderLen, BatchHeaderLen+len(records))
			PutBatchHeader(b, BatchHeader{Count: uint32(count), Base: next, AppendTime: 5, Checksum: 6})
			b = append(b, records...)
			next += core.Seq(count)
			run, want = append(run, b...), append(want, b)
		}
		last := core.Seq(0)
		for len(run) > 0 {
			batch, rest, err := NextBatch(run)
			if err != nil {
				t.Fatalf("NextBatch: %v", err)
			}
			if !bytes.Equal(batch.Bytes, want[0]) || batch.Base != last+1 {
				t.Fatalf("got batch %x at seq %d, want %x at %d", batch.Bytes, batch.Base, want[0], last+1)
			}
			if whole, err := DecodeBatch(want[0]); err != nil || whole.BatchHeader != batch.BatchHeader || !bytes.Equal(whole.Records, batch.Records) {
				t.Fatalf("DecodeBatch = %+v, %v; want the same as NextBatch", whole, err)
			}
			last, run, want = batch.Last(), rest, want[1:]
		}
		if last != next-1 {
			t.Fatalf("last seq is %d, want %d", last, next-1)
		}
	})
}

func TestDecodeBatch_RefusesEveryMutatedHeaderBit(t *testing.T) {
	b := sampleBatch()
	for bit := range BatchHeaderLen * 8 {
		b[bit/8] ^= 1 << (bit % 8)
		if _, err := DecodeBatch(b); err == nil {
			t.Errorf("batch with bit %d of byte %d flipped was accepted", bit%8, bit/8)
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
}

func TestDecodeBatch_RefusesBadHeaders(t *testing.T) {
	for name, test := range map[string]struct {
		header BatchHeader
		want   core.Code
	}{
		"no records":          {BatchHeader{Count: 0, Base: 1}, core.CodeBadRecord},
		"too many records":    {BatchHeader{Count: MaxBatchRecords + 1, Base: 1}, core.CodeBadRecord},
		"more than bytes":     {BatchHeader{Count: 100, Base: 1}, core.CodeBadRecord},
		"seq 0":               {BatchHeader{Count: 2, Base: 0}, core.CodeBadRecord},
		"past the last seq":   {BatchHeader{Count: 2, Base: 1<<64 - 2}, core.CodeBadRecord},
		"flags of the future": {BatchHeader{Count: 2, Base: 1, Flags: 1}, core.CodeVersion},
	} {
		t.Run(name, func(t *testing.T) {
			b := sampleBatch()
			PutBatchHeader(b, test.header)
			if _, err := DecodeBatch(b); core.CodeOf(err) != test.want {
				t.Errorf("DecodeBatch = %v, want %s", err, test.want)
			}
			if _, _, err := NextBatch(b); core.CodeOf(err) != test.want {
				t.Errorf("NextBatch = %v, want %s", err, test.want)
			}
		})
	}
	newer := sampleBatch()
	newer[1]++
	if _, err := DecodeBatch(newer); core.CodeOf(err) != core.CodeVersion {
		t.Errorf("DecodeBatch of a newer version = %v, want %s", err, core.CodeVersion)
	}
	b := sampleBatch()
	if _, _, err := NextBatch(b[:len(b)-1]); core.CodeOf(err) != core.CodeBadRecord {
		t.Errorf("NextBatch of a batch cut off = %v, want %s", err, core.CodeBadRecord)
	}
}

func TestExtendChecksum_RollsOverRecordChecksums(t *testing.T) {
	records := sampleRecords()
	first, second, err := NextRecord(records)
	if err != nil {
		t.Fatal(err)
	}
	crcs := append(bytes.Clone(first[4:8]), second[4:8]...)
	want := crc32.Checksum(crcs, crc32.MakeTable(crc32.Castagnoli))
	if got := ExtendChecksum(0, records); got != want {
		t.Errorf("checksum of both at once is %#x, want %#x", got, want)
	}
	if got := ExtendChecksum(ExtendChecksum(0, first), second); got != want {
		t.Errorf("checksum of one after the other is %#x, want %#x", got, want)
	}
}

func TestCheckRecords_Refuses(t *testing.T) {
	many := bytes.Repeat(mustAppendRecord(t, nil, &Record{}), MaxBatchRecords+1)
	if n, err := CheckRecords(many[RecordHeaderLen:], 0); n != MaxBatchRecords || err != nil {
		t.Errorf("CheckRecords of the most records = %d, %v", n, err)
	}
	if _, err := CheckRecords(many, 0); core.CodeOf(err) != core.CodeTooLarge {
		t.Errorf("CheckRecords of one more = %v, want %s", err, core.CodeTooLarge)
	}
	two := sampleRecords()
	if n, err := CheckRecords(two, 3); n != 2 || err != nil {
		t.Errorf("CheckRecords = %d, %v; want 2", n, err)
	}
	if _, err := CheckRecords(two, 2); core.CodeOf(err) != core.CodeTooLarge {
		t.Errorf("CheckRecords of payloads over the limit = %v, want %s", err, core.CodeTooLarge)
	}
	two[len(two)-1] ^= 1
	if _, err := CheckRecords(two, 3); core.CodeOf(err) != core.CodeBadRecord || !strings.Contains(err.Error(), "record 2") {
		t.Errorf("CheckRecords of a damaged record = %v, want %s naming record 2", err, core.CodeBadRecord)
	}
}
