package cassandra

import (
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// cellsOf is how many rows of cas_row Cassandra has at a key, with or without cells.
func cellsOf(t *testing.T, s *Store, k metadata.Key) (rows int) {
	t.Helper()
	count := statement{s.text("SELECT count(*) FROM %s"+ofRow, metadata.Seals), s.of(metadata.Seals, k)}
	err := s.session.read(t.Context(), gocql.Quorum, 1, count, func(answer gocql.Scanner) (bool, error) { return false, answer.Scan(&rows) })
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// gone waits until a row has ended.
func gone(t *testing.T, s *Store, k metadata.Key) {
	t.Helper()
	for {
		_, err := s.Get(t.Context(), metadata.Seals, k, metadata.Serial)
		if core.CodeOf(err) == core.CodeNotFound {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(20 * time.Millisecond) // its end is in seconds
	}
}

// TestStore_RowsThatEndLeaveNothing: a row that was inserted, and one that was loaded, are updated to end. No cell of
// them is left.
func TestStore_RowsThatEndLeaveNothing(t *testing.T) {
	s, ctx := open(t), t.Context()
	inserted, loaded := metadata.Key{Partition: "id", Row: "inserted"}, metadata.Key{Partition: "id", Row: "loaded"}
	if err := s.Insert(ctx, metadata.Seals, inserted, []byte("1")); err != nil {
		t.Fatal(err)
	}
	if err := s.Load(ctx, []metadata.Stored{{Table: metadata.Seals, Row: metadata.Row{Key: loaded, Value: []byte("1"), Version: 7}}}); err != nil {
		t.Fatal(err)
	}
	for _, k := range []metadata.Key{inserted, loaded} {
		row, err := s.Get(ctx, metadata.Seals, k, metadata.Serial)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Update(ctx, metadata.Seals, k, row.Version, []byte("2"), time.Second); err != nil {
			t.Fatal(err)
		}
	}
	for _, k := range []metadata.Key{inserted, loaded} {
		gone(t, s, k)
		if n := cellsOf(t, s, k); n != 0 {
			t.Errorf("Cassandra has %d rows of %s, want none", n, k.Row)
		}
	}
}

// TestStore_ARowThatWasToEndIsKeptForEver: the row is updated for ever before its end.
func TestStore_ARowThatWasToEndIsKeptForEver(t *testing.T) {
	s, ctx := open(t), t.Context()
	kept, clock := metadata.Key{Partition: "id", Row: "kept"}, metadata.Key{Partition: "id", Row: "clock"}
	version := func(k metadata.Key) metadata.Version {
		t.Helper()
		row, err := s.Get(ctx, metadata.Seals, k, metadata.Serial)
		if err != nil {
			t.Fatal(err)
		}
		return row.Version
	}
	for _, k := range []metadata.Key{kept, clock} {
		if err := s.Insert(ctx, metadata.Seals, k, nil); err != nil {
			t.Fatal(err)
		}
		if err := s.Update(ctx, metadata.Seals, k, version(k), []byte("ends"), 3*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	v := version(kept)
	if err := s.Update(ctx, metadata.Seals, kept, v, []byte("stays"), 0); err != nil {
		t.Fatal(err)
	}
	gone(t, s, clock)
	row, err := s.Get(ctx, metadata.Seals, kept, metadata.Serial)
	if err != nil || string(row.Value) != "stays" || row.Version != v+1 {
		t.Fatalf("after the end of before: %+v, %v", row, err)
	}
	if err := s.Insert(ctx, metadata.Seals, kept, nil); core.CodeOf(err) != core.CodeExists {
		t.Errorf("inserted over a row that is kept: %v", err)
	}
	if err := s.Update(ctx, metadata.Seals, kept, v+1, []byte("ends"), time.Second); err != nil {
		t.Fatal(err)
	}
	gone(t, s, kept)
	if err := s.Insert(ctx, metadata.Seals, kept, nil); err != nil {
		t.Errorf("insert after the end: %v", err)
	}
	if err := s.Delete(ctx, metadata.Seals, kept, version(kept)); err != nil {
		t.Errorf("delete: %v", err)
	}
}
