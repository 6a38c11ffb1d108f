package metadatatest

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

func ttl(t *testing.T, s metadata.Store) {
	ctx := t.Context()
	wantOK(t, "put", s.Put(ctx, puts, key("long"), []byte("x"), at(1), time.Hour, metadata.One))
	wantRow(t, s, puts, metadata.Row{Key: key("long"), Value: []byte("x"), Written: at(1)})
	wantOK(t, "put", s.Put(ctx, puts, key("short"), []byte("x"), at(2), time.Microsecond, metadata.One))
	untilGone(t, s, puts, key("short"))
	wantNoRow(t, s, puts, key("short"))
	wantOK(t, "older put", s.Put(ctx, puts, key("short"), []byte("old"), at(1), 0, metadata.One))
	wantNoRow(t, s, puts, key("short"))
	wantOK(t, "later put", s.Put(ctx, puts, key("short"), []byte("new"), at(3), 0, metadata.One))
	wantRow(t, s, puts, metadata.Row{Key: key("short"), Value: []byte("new"), Written: at(3)})
}

// casEnds gives CAS rows a time to live. When it is over, a row is as if it was deleted.
func casEnds(t *testing.T, s metadata.Store) {
	ctx, ends := t.Context(), metadata.Seals
	insert := func(k metadata.Key) metadata.Version {
		t.Helper()
		wantOK(t, "insert", s.Insert(ctx, ends, k, []byte("one")))
		row, err := s.Get(ctx, ends, k, metadata.Serial)
		wantOK(t, "get", err)
		return row.Version
	}
	none := func(k metadata.Key) { // such a table has no listing in some stores
		t.Helper()
		for _, c := range []metadata.Consistency{metadata.Quorum, metadata.Serial} {
			_, err := s.Get(ctx, ends, k, c)
			wantCode(t, "get "+k.Row, err, core.CodeNotFound)
		}
	}
	long, short := key("long"), key("short")
	v := insert(long)
	wantCode(t, "update of another version", s.Update(ctx, ends, long, v+1, nil, time.Hour), core.CodeConflict)
	wantOK(t, "update", s.Update(ctx, ends, long, v, []byte("two"), time.Hour))
	wantRow(t, s, ends, metadata.Row{Key: long, Value: []byte("two"), Version: v + 1})
	wantCode(t, "insert over a row that is to end", s.Insert(ctx, ends, long, nil), core.CodeExists)
	wantOK(t, "update", s.Update(ctx, ends, long, v+1, nil, 2*time.Hour))
	wantOK(t, "update for ever", s.Update(ctx, ends, long, v+2, []byte("four"), 0))
	wantRow(t, s, ends, metadata.Row{Key: long, Value: []byte("four"), Version: v + 3})
	wantOK(t, "update", s.Update(ctx, ends, long, v+3, nil, time.Hour))
	wantOK(t, "delete", s.Delete(ctx, ends, long, v+4))
	none(long)

	last := metadata.Version(0)
	for range 2 {
		v := insert(short)
		if v <= last {
			t.Errorf("a row that is inserted again has version %d, before its end it had %d", v, last)
		}
		wantOK(t, "update", s.Update(ctx, ends, short, v, []byte("two"), time.Microsecond))
		untilGone(t, s, ends, short)
		none(short)
		for _, old := range []metadata.Version{v, v + 1} {
			wantCode(t, "update after the end", s.Update(ctx, ends, short, old, nil, 0), core.CodeNotFound)
			wantCode(t, "update after the end", s.Update(ctx, ends, short, old, nil, time.Hour), core.CodeNotFound)
			wantCode(t, "delete after the end", s.Delete(ctx, ends, short, old), core.CodeNotFound)
		}
		last = v + 1
	}
	wantOK(t, "insert", s.Insert(ctx, ends, short, []byte("new")))
	wantCode(t, "time to live in another table", s.Update(ctx, swaps, short, 1, nil, time.Hour), core.CodeBadArgument)
	wantCode(t, "time to live below zero", s.Update(ctx, ends, short, 1, nil, -time.Second), core.CodeBadArgument)
}

// untilGone waits for the end of a row's time to live, for as long as the test may take.
func untilGone(t *testing.T, s metadata.Store, table metadata.Table, k metadata.Key) {
	t.Helper()
	for {
		_, err := s.Get(t.Context(), table, k, metadata.Serial)
		if core.CodeOf(err) == core.CodeNotFound {
			return
		}
		wantOK(t, "get", err)
		<-time.After(10 * time.Millisecond) // a store with times in seconds is not asked thousands of times
	}
}
