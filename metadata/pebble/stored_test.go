package pebble

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/metadata"
)

// TestStore_Stored has more than a page of rows, of which some are removed or end.
func TestStore_Stored(t *testing.T) {
	s, err := Open(t.TempDir(), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, large := t.Context(), []byte(strings.Repeat("x", metadata.MaxValue))
	at, want := time.UnixMicro(time.Now().UnixMicro()), []string{}
	for i := range 40 {
		k := metadata.Key{Partition: fmt.Sprint("p", i%3), Row: fmt.Sprintf("r%02d", i)}
		want = append(want, k.Partition+"/"+k.Row)
		if err := s.Insert(ctx, metadata.Queues, k, large); err != nil {
			t.Fatal(err)
		}
	}
	ends := metadata.Key{Partition: "a", Row: "ends"}
	for _, err := range []error{
		s.Put(ctx, metadata.Extents, metadata.Key{Partition: "a", Row: "stays"}, []byte("v"), at, 0, metadata.Quorum),
		s.Put(ctx, metadata.Extents, metadata.Key{Partition: "a", Row: "removed"}, []byte("v"), at, 0, metadata.Quorum),
		s.Remove(ctx, metadata.Extents, metadata.Key{Partition: "a", Row: "removed"}, at, metadata.Quorum),
		s.Put(ctx, metadata.Audit, ends, []byte("v"), at, time.Hour, metadata.Quorum),
		s.Put(ctx, metadata.Audit, metadata.Key{Partition: "a", Row: "ended"}, []byte("v"), at, time.Nanosecond, metadata.Quorum),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want = append(want, "a/stays", "a/ends")
	var got []string
	var rows []metadata.Stored
	if err := s.Stored(ctx, "", "", "", func(r metadata.Stored) error {
		got, rows = append(got, r.Row.Key.Partition+"/"+r.Row.Key.Row), append(rows, r)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	order := func(r metadata.Stored) string {
		return r.Table.Name + "\x00" + r.Row.Key.Partition + "\x00" + r.Row.Key.Row
	}
	if !slices.IsSortedFunc(rows, func(a, b metadata.Stored) int { return strings.Compare(order(a), order(b)) }) {
		t.Error("the rows are not in order")
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got %d rows, want %d: %v", len(got), len(want), got)
	}
	for _, r := range rows {
		switch {
		case r.Row.Key == ends && (time.Until(r.Expires) > time.Hour || time.Until(r.Expires) < 59*time.Minute || !r.Row.Written.Equal(at)):
			t.Errorf("the row that ends: %+v", r)
		case r.Table == metadata.Queues && (r.Row.Version == 0 || !r.Expires.IsZero()):
			t.Errorf("a queue's row has version %d, ends at %v", r.Row.Version, r.Expires)
		}
	}
	for i, r := range rows { // what follows each of them
		left := 0
		stop := errors.New("enough")
		err := s.Stored(ctx, r.Table.Name, r.Row.Key.Partition, r.Row.Key.Row, func(next metadata.Stored) error {
			if left++; left == 1 && order(next) != order(rows[i+1]) {
				t.Errorf("after row %d comes %s", i, order(next))
			}
			return stop
		})
		if last := i == len(rows)-1; last != (left == 0) || !last && !errors.Is(err, stop) {
			t.Errorf("after row %d: %d rows, %v", i, left, err)
		}
	}
}

// TestStore_StoredRowsOfChangesEnd: a copy is told when a CAS row ends.
func TestStore_StoredRowsOfChangesEnd(t *testing.T) {
	s, err := Open(t.TempDir(), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, k := t.Context(), metadata.Key{Partition: "id", Row: "a"}
	if err := s.Insert(ctx, metadata.Seals, k, nil); err != nil {
		t.Fatal(err)
	}
	row, err := s.Get(ctx, metadata.Seals, k, metadata.Serial)
	if err == nil {
		err = s.Update(ctx, metadata.Seals, k, row.Version, nil, time.Hour)
	}
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	err = s.Stored(ctx, "", "", "", func(r metadata.Stored) error {
		rows++
		if left := time.Until(r.Expires); left > time.Hour || left < 59*time.Minute {
			t.Errorf("the row ends in %s, want an hour", left)
		}
		return nil
	})
	if err != nil || rows != 1 {
		t.Errorf("%d rows, %v", rows, err)
	}
}
