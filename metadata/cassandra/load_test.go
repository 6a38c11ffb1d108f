package cassandra

import (
	"errors"
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
	if err := s.Stored(ctx, func(r metadata.Stored) error {
		if _, ok := found[r.Row.Key]; ok {
			t.Errorf("%v comes twice", r.Row.Key)
		}
		found[r.Row.Key] = r
		return nil
	}); err != nil {
		t.Fatal(err)
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
	stop := errors.New("enough")
	if err := s.Stored(ctx, func(metadata.Stored) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("Stored went on after an error: %v", err)
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
