package cassandra

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// TestStore_Load loads rows twice and works with them as with others.
func TestStore_Load(t *testing.T) {
	s, ctx := open(t), t.Context()
	at := time.UnixMicro(time.Now().Add(-time.Hour).UnixMicro())
	queue := metadata.Key{Partition: "id", Row: "q"}
	retired, over := metadata.Key{Partition: "id", Row: "r"}, metadata.Key{Partition: "id", Row: "s"}
	lease := metadata.Key{Partition: "id", Row: "l"}
	group := metadata.Key{Partition: "q", Row: "g"}
	extent := metadata.Key{Partition: "q", Row: "e"}
	audit := metadata.Key{Partition: "day", Row: "a"}
	rows := []metadata.Stored{
		{Table: metadata.Queues, Row: metadata.Row{Key: queue, Value: []byte("1"), Version: 700}},
		{Table: metadata.Leases, Row: metadata.Row{Key: lease, Version: 1}},
		{Table: metadata.Groups, Row: metadata.Row{Key: group, Value: []byte("2"), Version: 900}},
		{Table: metadata.Extents, Row: metadata.Row{Key: extent, Value: []byte("3"), Written: at}},
		{Table: metadata.Audit, Row: metadata.Row{Key: audit, Value: []byte("4"), Written: at}, Expires: time.Now().Add(time.Hour)},
		{Table: metadata.Seals, Row: metadata.Row{Key: retired, Value: []byte("5"), Version: 4}, Expires: time.Now().Add(time.Hour)},
		{Table: metadata.Seals, Row: metadata.Row{Key: over, Version: 4}, Expires: time.Now().Add(-time.Hour)},
		{Table: metadata.Audit, Row: metadata.Row{Key: metadata.Key{Partition: "day", Row: "over"}, Written: at}, Expires: time.Now().Add(-time.Hour)},
	}
	for range 2 {
		if err := s.Load(ctx, rows); err != nil {
			t.Fatal(err)
		}
	}
	found := make(map[metadata.Key]metadata.Stored)
	for _, r := range allPages(t, s) {
		if _, ok := found[r.Row.Key]; ok {
			t.Errorf("%v comes twice", r.Row.Key)
		}
		found[r.Row.Key] = r
	}
	if len(found) != len(rows)-2 {
		t.Errorf("%d rows are stored, want %d", len(found), len(rows)-2)
	}
	for _, r := range rows[:len(rows)-2] {
		got := found[r.Row.Key]
		if got.Table != r.Table || string(got.Row.Value) != string(r.Row.Value) || got.Row.Version != r.Row.Version || !got.Row.Written.Equal(r.Row.Written) {
			t.Errorf("stored %+v, want %+v", got, r)
		}
	}
	for _, k := range []metadata.Key{audit, retired} {
		if left := time.Until(found[k].Expires); left < 59*time.Minute || left > time.Hour+time.Minute {
			t.Errorf("row %s ends in %s, want an hour", k.Row, left)
		}
	}
	if !found[queue].Expires.IsZero() {
		t.Errorf("the queue ends at %s", found[queue].Expires)
	}
	listed, _, err := s.List(ctx, metadata.Queues, "id", "", 10, metadata.Quorum)
	if err != nil || len(listed) != 1 || listed[0].Version != 700 {
		t.Errorf("listed %+v, %v", listed, err)
	}
	if err := s.Insert(ctx, metadata.Queues, queue, []byte("x")); core.CodeOf(err) != core.CodeExists {
		t.Errorf("inserted over a loaded row: %v", err)
	}
	if err := s.Update(ctx, metadata.Queues, queue, 700, []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
	if row, err := s.Get(ctx, metadata.Queues, queue, metadata.Serial); err != nil || string(row.Value) != "5" || row.Version != 701 {
		t.Errorf("after an update: %+v, %v", row, err)
	}
	if err := s.Delete(ctx, metadata.Groups, group, 900); err != nil {
		t.Fatal(err)
	}
	if err := s.Insert(ctx, metadata.Groups, group, nil); err != nil {
		t.Fatal(err)
	}
	if row, err := s.Get(ctx, metadata.Groups, group, metadata.Serial); err != nil || row.Version <= 900 {
		t.Errorf("after a deletion and an insertion: %+v, %v", row, err)
	}
}

// allPages are all rows of a store.
func allPages(t *testing.T, s *Store) (all []metadata.Stored) {
	t.Helper()
	for place := []byte(nil); ; {
		rows, next, err := s.Page(t.Context(), place)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, rows...)
		if next == nil {
			return all
		}
		place = next
	}
}

// TestStore_Pages: rows of many pages come once each, and a page can be read again.
func TestStore_Pages(t *testing.T) {
	s, ctx := open(t), t.Context()
	var rows []metadata.Stored
	for i := range 4 * fetchRow {
		k := metadata.Key{Partition: fmt.Sprint(i % 3), Row: fmt.Sprintf("%04d", i)}
		rows = append(rows,
			metadata.Stored{Table: metadata.Seals, Row: metadata.Row{Key: k, Value: []byte("1"), Version: 7}},
			metadata.Stored{Table: metadata.Extents, Row: metadata.Row{Key: k, Value: []byte("2"), Written: time.UnixMicro(9)}})
	}
	for _, part := range s.Parts(rows) {
		if err := s.Load(ctx, part); err != nil {
			t.Fatal(err)
		}
	}
	found, pages := make(map[string]int), 0
	for place := []byte(nil); ; pages++ {
		first, next, err := s.Page(ctx, place)
		if err != nil {
			t.Fatal(err)
		}
		again, also, err := s.Page(ctx, place)
		if err != nil || len(again) != len(first) || !bytes.Equal(next, also) {
			t.Fatalf("read again, a page has %d rows and ends at %x, %v; before %d and %x", len(again), also, err, len(first), next)
		}
		for _, r := range first {
			found[r.Table.Name+" "+r.Row.Key.Row]++
		}
		if next == nil {
			break
		}
		place = next
	}
	if len(found) != len(rows) || pages < 8 {
		t.Errorf("%d rows were found in %d pages, want %d in at least 8", len(found), pages, len(rows))
	}
	for name, n := range found {
		if n != 1 {
			t.Errorf("%s comes %d times", name, n)
		}
	}
	if _, _, err := s.Page(ctx, []byte{200}); core.CodeOf(err) != core.CodeBadArgument {
		t.Errorf("a place of no table: %v", err)
	}
}

// TestStore_Parts: a request writes rows of one partition in Cassandra, or one row that changes by transactions.
func TestStore_Parts(t *testing.T) {
	s := scripted(&script{})
	defer s.Close()
	var rows []metadata.Stored
	for i := range 2 * batchRows {
		rows = append(rows, metadata.Stored{Table: metadata.Work, Row: metadata.Row{Key: metadata.Key{Partition: "p", Row: fmt.Sprint(i)}, Written: time.UnixMicro(1)}})
	}
	ends := metadata.Stored{Table: metadata.Work, Row: metadata.Row{Key: metadata.Key{Partition: "q", Row: "1"}, Written: time.UnixMicro(1)}, Expires: time.Now()}
	audit := metadata.Stored{Table: metadata.Audit, Row: ends.Row}
	seal := metadata.Stored{Table: metadata.Seals, Row: metadata.Row{Key: metadata.Key{Partition: "id", Row: "1"}, Version: 1}}
	rows = append(rows, seal, ends, seal, audit)
	var sizes []int
	for _, part := range s.Parts(rows) {
		sizes = append(sizes, len(part))
		for _, r := range part {
			if r.Table != part[0].Table || r.Row.Key.Partition != part[0].Row.Key.Partition {
				t.Errorf("a part has %v and %v", part[0], r)
			}
		}
	}
	if want := []int{1, 1, batchRows, batchRows, 1, 1}; !slices.Equal(sizes, want) {
		t.Errorf("parts of %v rows, want %v", sizes, want)
	}
}
