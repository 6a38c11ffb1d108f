package extentlog

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

func entryOf(t rapid.TB, k DueKey, size int) dueEntry {
	b, err := wire.AppendRecord(nil, &wire.Record{DeliverAt: k.At, Payload: make([]byte, size)})
	if err != nil {
		t.Fatal(err)
	}
	return dueEntry{k, b}
}

// rowsOf is what stageDue makes of a batch.
func rowsOf(entries []dueEntry, enqueued int64) (keys []DueKey, values [][]byte) {
	var sorted dueEntries
	for _, e := range entries {
		sorted.add(e)
	}
	for entries = sorted.inOrder(); len(entries) > 0; {
		n, size := dueRowOf(entries)
		value := make([]byte, size)
		putDueRow(value, entries[:n], enqueued)
		keys, values, entries = append(keys, entries[0].DueKey), append(values, value), entries[n:]
	}
	return keys, values
}

// TestDueRow_Merge: whatever batches bring, a reader of their rows gets each record once, in order, and knows early
// enough that no row has one before it.
func TestDueRow_Merge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type row struct {
			key   DueKey
			value []byte
		}
		var rows []row
		want := make(map[DueKey]DueRecord)
		seq := core.Seq(1)
		for batch := range rapid.IntRange(1, 5).Draw(t, "batches") {
			var entries []dueEntry
			for range rapid.IntRange(1, 40).Draw(t, "records") {
				e := entryOf(t, DueKey{rapid.Int64Range(1, 3*dueSpan).Draw(t, "due"), seq}, rapid.SampledFrom([]int{0, 100, dueRowSize / 2}).Draw(t, "size"))
				entries = append(entries, e)
				want[e.DueKey] = DueRecord{e.DueKey, int64(batch), e.record}
				seq++
			}
			keys, values := rowsOf(entries, int64(batch))
			for i, k := range keys {
				rows = append(rows, row{k, values[i]})
			}
		}
		slices.SortFunc(rows, func(a, b row) int {
			if a.key.Beyond(b.key) {
				return 1
			}
			return -1
		})
		last := DueKey{At: -1}
		merge := dueMerge{most: rapid.SampledFrom([]int{0, 3 * dueRowSize, math.MaxInt}).Draw(t, "most")}
		stored := make(map[DueKey][]byte)
		take := func(end DueKey) {
			for len(merge.rows) > 0 && end.Beyond(merge.rows[0].DueKey) {
				if first, lacks := merge.lacks(); lacks && !merge.fill(stored[first]) {
					t.Fatalf("the row at %+v is not sound when it is read again", first)
				}
				got := merge.rows[0].DueRecord
				if !got.Beyond(last) {
					t.Fatalf("%+v follows %+v", got.DueKey, last)
				}
				if w, there := want[got.DueKey]; !there || w.Enqueued != got.Enqueued || !bytes.Equal(w.Record, got.Record) {
					t.Fatalf("%+v of %d is not the record of that place, of %d, or came before", got.DueKey, got.Enqueued, w.Enqueued)
				}
				delete(want, got.DueKey)
				if last = got.DueKey; !merge.pop() {
					t.Fatalf("the row with %+v is not sound", got.DueKey)
				}
			}
		}
		for _, r := range rows {
			take(r.key)
			var d dueRow
			if !d.begin(r.key, r.value) {
				t.Fatalf("row %+v is not sound", r.key)
			}
			stored[r.key] = bytes.Clone(r.value)
			merge.push(d)
			if merge.held > max(merge.most, 2*dueRowSize) { // which those that wait for their turn keep, or the first one
				t.Fatalf("%d bytes are kept, of %d", merge.held, merge.most)
			}
			clear(r.value) // as the next step of an iterator does
		}
		if take(DueThrough(3 * dueSpan)); len(want) > 0 || merge.held != 0 {
			t.Fatalf("%d records did not come, %d bytes are kept", len(want), merge.held)
		}
	})
}

func TestDueRow_Skip(t *testing.T) {
	keys, values := rowsOf([]dueEntry{entryOf(t, DueKey{30, 1}, 9), entryOf(t, DueKey{10, 2}, 9), entryOf(t, DueKey{30, 3}, 9), entryOf(t, DueKey{10 + dueSpan, 4}, 9)}, 7)
	if diff := cmp.Diff([]DueKey{{10, 2}, {10 + dueSpan, 4}}, keys); diff != "" {
		t.Fatalf("keys (-want +got):\n%s", diff)
	}
	for after, want := range map[DueKey]DueKey{{0, 0}: {10, 2}, {10, 1}: {10, 2}, {10, 2}: {30, 1}, {30, 1}: {30, 3}, {30, 3}: {}, {99, 0}: {}} {
		var r dueRow
		if !r.begin(keys[0], values[0]) {
			t.Fatal("the row is not sound")
		}
		some, sound := r.skip(after)
		if !sound || some != (want != DueKey{}) || some && r.DueKey != want {
			t.Errorf("beyond %+v comes %+v (%v, %v), want %+v", after, r.DueKey, some, sound, want)
		}
	}
	// A row of one record is what earlier builds wrote for each.
	one := entryOf(t, DueKey{10 + dueSpan, 4}, 9)
	if want := append(binary.LittleEndian.AppendUint64(nil, 7), one.record...); !bytes.Equal(want, values[1]) {
		t.Errorf("a row of one record is % x, want % x", values[1], want)
	}
}

// FuzzDueRow reads rows that are not sound.
func FuzzDueRow(f *testing.F) {
	_, values := rowsOf([]dueEntry{entryOf(f, DueKey{10, 1}, 5), entryOf(f, DueKey{11, 2}, 5), entryOf(f, DueKey{11, 3}, 5)}, 7)
	f.Add(values[0])
	f.Add(values[0][:len(values[0])-3])
	f.Fuzz(func(t *testing.T, value []byte) {
		first := DueKey{10, 1}
		var r dueRow
		if !r.begin(first, value) {
			return
		}
		for last := r.DueKey; len(r.rest) > 0; last = r.DueKey {
			if !r.next() {
				return
			}
			if !r.Beyond(last) || r.At >= first.At+dueSpan || len(r.Record) == 0 {
				t.Fatalf("%+v follows %+v", r.DueKey, last)
			}
		}
	})
}
