package wire

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/columbamq/columba/core"
)

func TestAppendRecord_RefusesWithoutWriting(t *testing.T) {
	for name, test := range map[string]struct {
		record Record
		want   core.Code
	}{
		"long payload":             {Record{Payload: make([]byte, MaxPayload+1)}, core.CodeTooLarge},
		"long key":                 {Record{Key: make([]byte, MaxKey+1)}, core.CodeTooLarge},
		"long traceparent":         {Record{TraceParent: make([]byte, MaxTraceParent+1)}, core.CodeTooLarge},
		"long metadata":            {Record{Metadata: make([]byte, MaxAttributes+1)}, core.CodeTooLarge},
		"long reason code":         {Record{ReasonCode: make([]byte, MaxReasonCode+1)}, core.CodeTooLarge},
		"long reason":              {Record{Reason: make([]byte, MaxReason+1)}, core.CodeTooLarge},
		"long consumer":            {Record{LastConsumer: make([]byte, MaxConsumerName+1)}, core.CodeTooLarge},
		"much in all":              {Record{Metadata: make([]byte, MaxAttributes-2), Attempts: 1}, core.CodeTooLarge},
		"unknown codec":            {Record{Codec: 2}, core.CodeBadArgument},
		"two due times":            {Record{DeliverAt: 1, Delay: 1}, core.CodeBadArgument},
		"negative delay":           {Record{Delay: -1}, core.CodeBadArgument},
		"due after the year 9999":  {Record{DeliverAt: MaxMillis + 1}, core.CodeBadArgument},
		"expired before 1970":      {Record{ExpireAt: -1}, core.CodeBadArgument},
		"enqueued after all times": {Record{FirstEnqueue: 1 << 62}, core.CodeBadArgument},
		"headers of no form":       {Record{Headers: []byte("x-y: z")}, core.CodeBadArgument},
		"extra field cut off":      {Record{Extra: []byte{1, 0, 9, 0, 1}}, core.CodeBadArgument},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := AppendRecord([]byte("before"), &test.record)
			if core.CodeOf(err) != test.want || string(got) != "before" {
				t.Errorf("AppendRecord = %d bytes, %v; want %s and nothing written", len(got), err, test.want)
			}
		})
	}
}

func TestAppendRecord_TakesTheLargest(t *testing.T) {
	r := &Record{Metadata: make([]byte, MaxAttributes-2), Payload: make([]byte, MaxPayload)}
	b := mustAppendRecord(t, nil, r)
	if len(b) != MaxRecord {
		t.Errorf("largest record has %d bytes, want %d", len(b), MaxRecord)
	}
	var got Record
	if n, err := DecodeRecord(b, &got); n != len(b) || err != nil {
		t.Errorf("DecodeRecord of the largest record = %d, %v", n, err)
	}
}

// A record that is intact but breaks a rule.
func TestDecodeRecord_RefusesBrokenRules(t *testing.T) {
	full := mustAppendRecord(t, nil, fullRecord())
	withFlags := func(b []byte, flags uint32) []byte {
		b = bytes.Clone(b)
		binary.LittleEndian.PutUint32(b[8:], flags)
		return b
	}
	record := func(flags uint32, attributes ...byte) []byte {
		b := make([]byte, RecordHeaderLen, RecordHeaderLen+len(attributes))
		binary.LittleEndian.PutUint32(b[8:], flags)
		binary.LittleEndian.PutUint16(b[12:], uint16(len(attributes)))
		return append(b, attributes...)
	}
	reserved := record(0)
	reserved[14] = 1
	beyond := record(0)
	beyond[12] = 1
	for name, test := range map[string]struct {
		record []byte
		want   core.Code
	}{
		"next flag":                {withFlags(full, binary.LittleEndian.Uint32(full[8:])|recordExtra<<1), core.CodeVersion},
		"last flag":                {record(1 << 31), core.CodeVersion},
		"codec 2":                  {record(2 << codecShift), core.CodeVersion},
		"reserved field":           {reserved, core.CodeVersion},
		"attributes past the end":  {beyond, core.CodeBadRecord},
		"attributes cut off":       {record(recordID, 1, 2, 3), core.CodeBadRecord},
		"bytes after the last one": {record(recordPriority, 1, 2), core.CodeBadRecord},
		"attributes without flags": {record(0, 1), core.CodeBadRecord},
		"empty id":                 {record(recordID, make([]byte, 16)...), core.CodeBadRecord},
		"empty key":                {record(recordKey, 0), core.CodeBadRecord},
		"long key":                 {record(recordKey, append([]byte{MaxKey + 1}, make([]byte, MaxKey+1)...)...), core.CodeBadRecord},
		"negative due time":        {record(recordDeliverAt, 0, 0, 0, 0, 0, 0, 0, 0x80), core.CodeBadRecord},
		"two due times":            {record(recordDeliverAt|recordDelay, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0), core.CodeBadRecord},
		"malformed headers":        {record(recordHeaders, 3, 0, 1, 0, 9), core.CodeBadRecord},
		"malformed extra":          {record(recordExtra, 1, 0, 9, 0), core.CodeBadRecord},
	} {
		t.Run(name, func(t *testing.T) {
			mend(test.record)
			var r Record
			if _, err := DecodeRecord(test.record, &r); core.CodeOf(err) != test.want {
				t.Errorf("DecodeRecord = %v, want %s", err, test.want)
			}
		})
	}
}

func TestDecodeRecord_RefusesImpossibleLengths(t *testing.T) {
	for _, length := range []uint32{0, 7, MaxRecord - 7, 1 << 31, 1<<32 - 1} {
		b := mustAppendRecord(t, nil, &Record{})
		binary.LittleEndian.PutUint32(b, length)
		if _, err := DecodeRecord(b, new(Record)); core.CodeOf(err) != core.CodeBadRecord {
			t.Errorf("DecodeRecord of length %d = %v, want %s", length, err, core.CodeBadRecord)
		}
		if _, _, err := NextRecord(b); core.CodeOf(err) != core.CodeBadRecord {
			t.Errorf("NextRecord of length %d = %v, want %s", length, err, core.CodeBadRecord)
		}
	}
}

func TestHeaders(t *testing.T) {
	want := [][2]string{{"a", "1"}, {"b", ""}, {"a", "2"}}
	b, err := AppendHeaders(nil, want...)
	if err != nil {
		t.Fatal(err)
	}
	var got [][2]string
	if err := EachHeader(b, func(name, value []byte) bool {
		got = append(got, [2]string{string(name), string(value)})
		return len(got) < 2
	}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want[:2], got); diff != "" {
		t.Errorf("headers up to where yield stopped differ (-want +got):\n%s", diff)
	}
	if b, err := AppendHeaders(nil); len(b) != 0 || err != nil {
		t.Errorf("AppendHeaders of nothing = %x, %v", b, err)
	}
	if _, err := AppendHeaders(nil, [2]string{"", "x"}); core.CodeOf(err) != core.CodeBadArgument {
		t.Errorf("AppendHeaders without a name = %v, want %s", err, core.CodeBadArgument)
	}
	if _, err := AppendHeaders(nil, [2]string{"x", strings.Repeat("y", MaxPublished-6)}); core.CodeOf(err) != core.CodeTooLarge {
		t.Errorf("AppendHeaders of much = %v, want %s", err, core.CodeTooLarge)
	}
	for n := range b {
		if err := EachHeader(b[:n], func(_, _ []byte) bool { return true }); (core.CodeOf(err) == core.CodeBadRecord) != (n > 0) {
			t.Errorf("EachHeader of %d of %d bytes = %v", n, len(b), err)
		}
	}
}
