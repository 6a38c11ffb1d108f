package metadatatest

import (
	"fmt"
	"testing"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// persistence checks that rows, versions, timestamps and removals outlive a close.
func persistence(t *testing.T, open func(*testing.T) metadata.Store, reopen func(*testing.T, metadata.Store) metadata.Store) {
	ctx := t.Context()
	s := open(t)
	t.Cleanup(func() { s.Close() })
	const rows = 100
	for i := range rows {
		wantOK(t, "insert", s.Insert(ctx, swaps, key(fmt.Sprintf("%03d", i)), fmt.Append(nil, i)))
	}
	versions := map[string]metadata.Version{}
	for _, row := range []string{"007", "008", "099"} {
		got, err := s.Get(ctx, swaps, key(row), metadata.Serial)
		wantOK(t, "get", err)
		versions[row] = got.Version
	}
	wantOK(t, "update", s.Update(ctx, swaps, key("007"), versions["007"], []byte("new"), 0))
	wantOK(t, "delete", s.Delete(ctx, swaps, key("008"), versions["008"]))
	wantOK(t, "put", s.Put(ctx, puts, key("kept"), []byte("x"), at(3), 0, metadata.One))
	wantOK(t, "put", s.Put(ctx, puts, key("removed"), []byte("x"), at(3), 0, metadata.One))
	wantOK(t, "remove", s.Remove(ctx, puts, key("removed"), at(4), metadata.One))
	for round := range 3 {
		s = reopen(t, s)
		got, err := listAll(ctx, s, swaps, "p", 30)
		if err != nil || len(got) != rows-1 {
			t.Fatalf("round %d: %d rows, %v; want %d", round, len(got), err, rows-1)
		}
		wantRow(t, s, swaps, metadata.Row{Key: key("007"), Value: []byte("new"), Version: versions["007"] + 1})
		wantRow(t, s, swaps, metadata.Row{Key: key("099"), Value: []byte("99"), Version: versions["099"]})
		wantNoRow(t, s, swaps, key("008"))
		wantCode(t, "stale update", s.Update(ctx, swaps, key("007"), versions["007"], nil, 0), core.CodeConflict)
		wantRow(t, s, puts, metadata.Row{Key: key("kept"), Value: []byte("x"), Written: at(3)})
		wantOK(t, "older put", s.Put(ctx, puts, key("removed"), []byte("old"), at(3), 0, metadata.One))
		wantNoRow(t, s, puts, key("removed"))
	}
}
