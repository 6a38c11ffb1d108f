package wire

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/columbamq/columba/core"
)

// mustAppendRecord encodes r or fails the test.
func mustAppendRecord(t testing.TB, dst []byte, r *Record) []byte {
	t.Helper()
	b, err := AppendRecord(dst, r)
	if err != nil {
		t.Fatalf("AppendRecord: %v", err)
	}
	return b
}

func testID(seed byte) core.ID {
	var id core.ID
	for i := range id {
		id[i] = seed + byte(i)
	}
	return id
}

// plainRecord is what a publisher usually sends: an id, a key and a payload of n bytes.
func plainRecord(n int) *Record {
	return &Record{ID: core.MessageID{ID: testID(1)}, Key: []byte("customer-42"), Payload: bytes.Repeat([]byte{0xa5}, n)}
}

func TestDecodeRecord_ReturnsWhatWasEncoded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawRecord(t)
		b, err := AppendRecord([]byte("before"), want)
		if err != nil {
			t.Fatalf("AppendRecord: %v", err)
		}
		b = append(b[len("before"):], "after"...)
		var got Record
		n, err := DecodeRecord(b, &got)
		if err != nil {
			t.Fatalf("DecodeRecord: %v", err)
		}
		if n != len(b)-len("after") {
			t.Fatalf("DecodeRecord read %d bytes, want %d", n, len(b)-len("after"))
		}
		if diff := cmp.Diff(want, &got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("decoded record differs (-want +got):\n%s", diff)
		}
		if p := PayloadOf(b[:n]); !bytes.Equal(p, want.Payload) {
			t.Fatalf("PayloadOf = %x, want %x", p, want.Payload)
		}
	})
}

func TestDecodeRecord_RefusesEveryMutatedBit(t *testing.T) {
	for name, r := range map[string]*Record{"minimal": {}, "full": fullRecord()} {
		t.Run(name, func(t *testing.T) {
			b := mustAppendRecord(t, nil, r)
			var got Record
			for bit := range len(b) * 8 {
				b[bit/8] ^= 1 << (bit % 8)
				if _, err := DecodeRecord(b, &got); err == nil {
					t.Errorf("record with bit %d of byte %d flipped was accepted", bit%8, bit/8)
				}
				b[bit/8] ^= 1 << (bit % 8)
			}
			for n := range b {
				if _, err := DecodeRecord(b[:n], &got); core.CodeOf(err) != core.CodeBadRecord {
					t.Errorf("record cut off after %d bytes: got %v, want %s", n, err, core.CodeBadRecord)
				}
			}
		})
	}
}

func TestDecodeRecord_AllocatesNothing(t *testing.T) {
	b := mustAppendRecord(t, nil, fullRecord())
	var r Record
	if n := testing.AllocsPerRun(100, func() {
		if _, err := DecodeRecord(b, &r); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("DecodeRecord allocates %v times, want 0", n)
	}
	many := bytes.Repeat(b, 100)
	if n := testing.AllocsPerRun(100, func() {
		if count, err := CheckRecords(many, MaxPayload); err != nil || count != 100 {
			t.Fatalf("CheckRecords = %d, %v", count, err)
		}
	}); n != 0 {
		t.Errorf("CheckRecords allocates %v times, want 0", n)
	}
}

var benchmarkSizes = []struct {
	name string
	n    int
}{{"100B", 100}, {"1KiB", 1 << 10}, {"64KiB", 64 << 10}}

func BenchmarkEncode(b *testing.B) {
	for _, size := range benchmarkSizes {
		b.Run(size.name, func(b *testing.B) {
			r := plainRecord(size.n)
			dst := make([]byte, 0, size.n+256)
			b.SetBytes(int64(size.n))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := AppendRecord(dst, r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, size := range benchmarkSizes {
		b.Run(size.name, func(b *testing.B) {
			encoded := mustAppendRecord(b, nil, plainRecord(size.n))
			var r Record
			b.SetBytes(int64(size.n))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := DecodeRecord(encoded, &r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestCheckRecords_IDOnly holds the short way for records with an id alone to the long one, over every flipped bit and
// every cut.
func TestCheckRecords_IDOnly(t *testing.T) {
	r := &Record{ID: plainRecord(0).ID, Payload: []byte("0123456789")}
	whole := mustAppendRecord(t, nil, r)
	same := func(b []byte, most int) {
		t.Helper()
		var into Record
		n, want := DecodeRecord(b, &into)
		if want == nil && n < len(b) {
			return // what follows is judged by itself
		}
		if want == nil && len(into.Payload) > most {
			want = core.Errorf(core.CodeTooLarge, "payload")
		}
		if _, err := CheckRecords(b, most); core.CodeOf(err) != core.CodeOf(want) {
			t.Fatalf("CheckRecords(%x, %d): %v, want the code of %v", b, most, err, want)
		}
	}
	for cut := 1; cut <= len(whole); cut++ {
		same(whole[:cut], MaxPayload)
	}
	for bit := range 8 * len(whole) {
		b := bytes.Clone(whole)
		b[bit/8] ^= 1 << (bit % 8)
		same(b, MaxPayload)
	}
	same(whole, 10)
	same(whole, 9)
	noID := bytes.Clone(whole)
	clear(noID[RecordHeaderLen : RecordHeaderLen+16])
	binary.LittleEndian.PutUint32(noID[4:], recordCRC(noID))
	same(noID, MaxPayload)
	if _, err := CheckRecords(noID, MaxPayload); err == nil {
		t.Fatal("a record whose id is zero passed")
	}
}

func BenchmarkCheckRecords(b *testing.B) {
	for _, size := range benchmarkSizes {
		b.Run(size.name, func(b *testing.B) {
			encoded := bytes.Repeat(mustAppendRecord(b, nil, plainRecord(size.n)), 64)
			b.SetBytes(int64(64 * size.n))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := CheckRecords(encoded, MaxPayload); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
