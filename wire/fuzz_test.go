package wire

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// mend makes length and checksum of a lone record right, so that the fuzzer gets past them.
func mend(record []byte) {
	if len(record) >= RecordHeaderLen {
		binary.LittleEndian.PutUint32(record, uint32(len(record)-8))
		binary.LittleEndian.PutUint32(record[4:], recordCRC(record))
	}
}

func FuzzDecodeRecord(f *testing.F) {
	for _, b := range readGolden(f, "records.json") {
		f.Add(b, false)
		f.Add(b, true)
	}
	f.Fuzz(func(t *testing.T, b []byte, mended bool) {
		if b = bytes.Clone(b); mended {
			mend(b)
		}
		var r Record
		n, err := DecodeRecord(b, &r)
		idOnly := err == nil && cmp.Equal(r, Record{ID: r.ID, Payload: r.Payload}, cmpopts.EquateEmpty()) && !r.ID.ID.IsZero()
		if size := IDOnlyRecord(b); (size > 0) != idOnly || idOnly && size != n {
			t.Fatalf("IDOnlyRecord of %x is %d; DecodeRecord says %d bytes, %v", b, size, n, err)
		}
		if err != nil {
			return
		}
		again, err := AppendRecord(nil, &r)
		if err != nil {
			t.Fatalf("AppendRecord of a decoded record: %v", err)
		}
		if !bytes.Equal(again, b[:n]) {
			t.Fatalf("record %x encodes to %x: it has two encodings", b[:n], again)
		}
		if err := EachHeader(r.Headers, func(name, _ []byte) bool { return len(name) > 0 }); err != nil {
			t.Fatalf("EachHeader of a decoded record: %v", err)
		}
		if at := DeliverAt(b[:n]); at != r.DeliverAt {
			t.Fatalf("DeliverAt = %d, want %d", at, r.DeliverAt)
		}
		if !bytes.Equal(PayloadOf(b[:n]), r.Payload) {
			t.Fatalf("PayloadOf = %x, want %x", PayloadOf(b[:n]), r.Payload)
		}
	})
}

func FuzzCheckRecords(f *testing.F) {
	f.Add(sampleRecords(), 3)
	for _, b := range readGolden(f, "records.json") {
		f.Add(slices.Concat(b, b, b), MaxPayload)
	}
	f.Fuzz(func(t *testing.T, b []byte, maxPayload int) {
		count, err := CheckRecords(b, maxPayload)
		if err != nil {
			return
		}
		for range count {
			record, rest, err := NextRecord(b)
			if err != nil {
				t.Fatalf("NextRecord of checked records: %v", err)
			}
			if len(PayloadOf(record)) > maxPayload {
				t.Fatalf("payload of %d bytes was accepted, limit %d", len(PayloadOf(record)), maxPayload)
			}
			b = rest
		}
		if len(b) != 0 {
			t.Fatalf("%d records were counted, but %d bytes are left", count, len(b))
		}
	})
}

func FuzzDecodeBatch(f *testing.F) {
	for _, b := range readGolden(f, "batch.json") {
		f.Add(b, false)
		f.Add(slices.Concat(b, b), true)
	}
	f.Fuzz(func(t *testing.T, b []byte, mended bool) {
		if b = bytes.Clone(b); mended && len(b) >= BatchHeaderLen {
			binary.LittleEndian.PutUint32(b[28:], crc32.Checksum(b[:28], castagnoli))
		}
		whole, err := DecodeBatch(b)
		if err != nil {
			return
		}
		header := make([]byte, BatchHeaderLen)
		PutBatchHeader(header, whole.BatchHeader)
		if !bytes.Equal(header, b[:BatchHeaderLen]) {
			t.Fatalf("header %x encodes to %x", b[:BatchHeaderLen], header)
		}
		ExtendChecksum(0, whole.Records)
		first, rest, err := NextBatch(b)
		if err == nil && !bytes.Equal(slices.Concat(first.Bytes, rest), b) {
			t.Fatalf("NextBatch lost bytes: %d and %d of %d", len(first.Bytes), len(rest), len(b))
		}
	})
}

func FuzzNextFrame(f *testing.F) {
	var all []byte
	for _, b := range readGolden(f, "frames.json") {
		f.Add(b)
		all = append(all, b...)
	}
	f.Add(all)
	f.Fuzz(func(t *testing.T, msg []byte) {
		for len(msg) > 0 {
			frame, rest, err := NextFrame(msg)
			if err != nil {
				return
			}
			again := AppendFrameHeader(nil, frame.Type, frame.Flags, frame.Stream, len(frame.Body))
			if again = slices.Concat(again, frame.Body, rest); !bytes.Equal(again, msg) {
				t.Fatalf("message %x became %x", msg, again)
			}
			msg = rest
		}
	})
}

// FuzzBodies decodes every hand-written body; which is an index into their sorted names.
func FuzzBodies(f *testing.F) {
	names := slices.Sorted(maps.Keys(kinds))
	for i, name := range names {
		f.Add(uint8(i), kinds[name].sample.Append(nil))
	}
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		k := kinds[names[int(which)%len(names)]]
		got := k.new()
		if got.Decode(b) != nil {
			return
		}
		again := got.Append(nil)
		if !bytes.Equal(again, b) {
			t.Fatalf("body %x encodes to %x: it has two encodings", b, again)
		}
		reused := k.new()
		if err := reused.Decode(k.sample.Append(nil)); err != nil {
			t.Fatal(err)
		}
		if err := reused.Decode(b); err != nil {
			t.Fatalf("Decode into a used body: %v", err)
		}
		if diff := cmp.Diff(got, reused, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("Decode into a used body differs (-want +got):\n%s", diff)
		}
	})
}

// FuzzDue gets past the checksum of the entries.
func FuzzDue(f *testing.F) {
	f.Add(sampleDue().Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if b = bytes.Clone(b); len(b) >= dueFixedLen {
			n := int(min(binary.LittleEndian.Uint32(b), MaxDueRecords))
			binary.LittleEndian.PutUint32(b[4:], dueCRC(b[:min(DueLen(n, 0), len(b))]))
		}
		var d Due
		if d.Decode(b) != nil {
			return
		}
		if again := d.Append(nil); !bytes.Equal(again, b) {
			t.Fatalf("body %x encodes to %x", b, again)
		}
		for _, e := range d.Entries {
			if e.Seq == 0 {
				t.Fatal("seq 0 is taken")
			}
		}
	})
}

func FuzzHeaders(f *testing.F) {
	f.Add(fullRecord().Headers)
	f.Fuzz(func(t *testing.T, b []byte) {
		var pairs [][2]string
		if EachHeader(b, func(name, value []byte) bool {
			pairs = append(pairs, [2]string{string(name), string(value)})
			return true
		}) != nil || len(b) > MaxAttributes {
			return
		}
		again, err := AppendHeaders(nil, pairs...)
		if err != nil || !bytes.Equal(again, b) {
			t.Fatalf("headers %x encode to %x, %v", b, again, err)
		}
	})
}
