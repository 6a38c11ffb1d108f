package wire

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/columbamq/columba/core"
)

func encoded(t interface{ Fatal(...any) }, records ...Record) (out []byte) {
	for i := range records {
		var err error
		if out, err = AppendRecord(out, &records[i]); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func TestCheckPublished_FindsTimesInAnyRecord(t *testing.T) {
	plain := Record{Payload: []byte("a"), Key: []byte("k"), ExpireAt: 1}
	id := Record{ID: core.MessageID{ID: core.ID{1}}, Payload: []byte("b")}
	for name, c := range map[string]struct {
		records []Record
		timed   bool
	}{
		"none": {nil, false}, "plain ones": {[]Record{plain, id, plain}, false},
		"deliver_at": {[]Record{plain, {DeliverAt: 1}, id}, true}, "delay": {[]Record{id, plain, {Delay: 1}}, true},
	} {
		count, timed, err := CheckPublished(encoded(t, c.records...), 10, true)
		if err != nil || count != len(c.records) || timed != c.timed {
			t.Errorf("%s: %d records, timed %v, %v", name, count, timed, err)
		}
	}
}

// TestFixDeliverAt_IsWhatEncodingSays compares the change in place with decoding, changing and encoding again, for
// records of any shape.
func TestFixDeliverAt_IsWhatEncodingSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Record{
			Key: rapid.SliceOfN(rapid.Byte(), 0, MaxKey).Draw(t, "key"), Priority: rapid.Byte().Draw(t, "priority"),
			ProducerSeq: rapid.Uint64().Draw(t, "producer"), ExpireAt: rapid.Int64Range(0, MaxMillis).Draw(t, "expire"),
			Attempts: rapid.Uint16().Draw(t, "attempts"), Payload: rapid.SliceOf(rapid.Byte()).Draw(t, "payload"),
		}
		if rapid.Bool().Draw(t, "id") {
			r.ID = core.MessageID{ID: core.NewID(core.ID{}.Time())}
		}
		now := rapid.Int64Range(1, MaxMillis).Draw(t, "now")
		want := int64(0)
		switch rapid.IntRange(0, 2).Draw(t, "time") {
		case 1:
			r.DeliverAt = rapid.Int64Range(1, MaxMillis).Draw(t, "at")
			want = r.DeliverAt
		case 2:
			r.Delay = rapid.Int64Range(1, MaxMillis).Draw(t, "delay")
			want = now + r.Delay
		}
		record := encoded(t, r)
		before := bytes.Clone(record)
		if got := FixDeliverAt(record, now); got != want {
			t.Fatalf("due %d, want %d", got, want)
		}
		if r.Delay != 0 && want <= MaxMillis {
			r.Delay, r.DeliverAt = 0, want
			before = encoded(t, r)
		}
		if diff := cmp.Diff(before, record); diff != "" {
			t.Errorf("the record (-want +got):\n%s", diff)
		}
		if _, err := CheckRecords(record, MaxPayload); err != nil {
			t.Error(err)
		}
	})
}
