package metadatatest

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

func casRow(t *testing.T, s metadata.Store) {
	ctx, k := t.Context(), key("a")
	wantNoRow(t, s, swaps, k)
	wantCode(t, "update of no row", s.Update(ctx, swaps, k, 1, []byte("x"), 0), core.CodeNotFound)
	wantCode(t, "delete of no row", s.Delete(ctx, swaps, k, 1), core.CodeNotFound)
	v := inserted(t, s, k, "one")
	wantRow(t, s, swaps, metadata.Row{Key: k, Value: []byte("one"), Version: v})
	wantCode(t, "second insert", s.Insert(ctx, swaps, k, []byte("two")), core.CodeExists)
	wantOK(t, "update", s.Update(ctx, swaps, k, v, []byte("two"), 0))
	wantRow(t, s, swaps, metadata.Row{Key: k, Value: []byte("two"), Version: v + 1})
	for _, old := range []metadata.Version{0, v, v + 2} {
		wantCode(t, "update of another version", s.Update(ctx, swaps, k, old, []byte("no"), 0), core.CodeConflict)
		wantCode(t, "delete of another version", s.Delete(ctx, swaps, k, old), core.CodeConflict)
	}
	wantRow(t, s, swaps, metadata.Row{Key: k, Value: []byte("two"), Version: v + 1})
	wantOK(t, "update to nothing", s.Update(ctx, swaps, k, v+1, nil, 0))
	wantRow(t, s, swaps, metadata.Row{Key: k, Version: v + 2})
	wantOK(t, "delete", s.Delete(ctx, swaps, k, v+2))
	wantNoRow(t, s, swaps, k)
}

// casRowAgain inserts a row that was deleted: a change that began before the deletion never reaches the new row.
func casRowAgain(t *testing.T, s metadata.Store) {
	ctx, k := t.Context(), key("a")
	last := metadata.Version(0)
	for range 20 {
		v := inserted(t, s, k, "row")
		if v <= last {
			t.Fatalf("a row that is inserted again has version %d, before its deletion it had %d", v, last)
		}
		wantCode(t, "update of the row before", s.Update(ctx, swaps, k, last, nil, 0), core.CodeConflict)
		wantCode(t, "delete of the row before", s.Delete(ctx, swaps, k, last), core.CodeConflict)
		wantOK(t, "update", s.Update(ctx, swaps, k, v, nil, 0))
		wantOK(t, "update", s.Update(ctx, swaps, k, v+1, nil, 0))
		wantOK(t, "delete", s.Delete(ctx, swaps, k, v+2))
		last = v + 2
	}
}

// inserted inserts a row and returns its version.
func inserted(t *testing.T, s metadata.Store, k metadata.Key, value string) metadata.Version {
	t.Helper()
	said, err := metadata.InsertVersion(t.Context(), s, swaps, k, []byte(value))
	wantOK(t, "insert", err)
	row, err := s.Get(t.Context(), swaps, k, metadata.Serial)
	wantOK(t, "get", err)
	if said != 0 && said != row.Version {
		t.Errorf("the store says that the new row has version %d, and it has %d", said, row.Version)
	}
	return row.Version
}

func casRace(t *testing.T, s metadata.Store) {
	const writers, rounds = 8, 10
	for round := range rounds {
		k := key(fmt.Sprint("race", round))
		var inserted, updated atomic.Int32
		race := func(won *atomic.Int32, lost core.Code, change func(writer int) error) {
			var wg sync.WaitGroup
			for w := range writers {
				wg.Go(func() {
					switch err := change(w); core.CodeOf(err) {
					case "":
						won.Add(1)
					case lost:
					default:
						t.Errorf("writer %d: %v", w, err)
					}
				})
			}
			wg.Wait()
		}
		race(&inserted, core.CodeExists, func(w int) error { return s.Insert(t.Context(), swaps, k, []byte{byte(w)}) })
		row, err := s.Get(t.Context(), swaps, k, metadata.Serial)
		wantOK(t, "get", err)
		race(&updated, core.CodeConflict, func(w int) error { return s.Update(t.Context(), swaps, k, row.Version, []byte{byte(w)}, 0) })
		if inserted.Load() != 1 || updated.Load() != 1 {
			t.Errorf("%d inserts and %d updates won, want one each", inserted.Load(), updated.Load())
		}
	}
}

func putLatestWins(t *testing.T, s metadata.Store) {
	ctx, k := t.Context(), key("a")
	for _, tick := range []int{5, 3, 9, 1, 8} {
		wantOK(t, "put", s.Put(ctx, puts, k, fmt.Append(nil, tick), at(tick), 0, metadata.One))
	}
	wantRow(t, s, puts, metadata.Row{Key: k, Value: []byte("9"), Written: at(9)})
	fine := at(9).Add(metadata.Tick - 1) // cut to tick 9, and "A" is larger than "9"
	wantOK(t, "put", s.Put(ctx, puts, k, []byte("A"), fine, 0, metadata.Quorum))
	wantRow(t, s, puts, metadata.Row{Key: k, Value: []byte("A"), Written: at(9)})
}

func putEqualTimes(t *testing.T, s metadata.Store) {
	ctx := t.Context()
	for i, values := range [][]string{{"a", "b"}, {"b", "a"}} {
		k := key(fmt.Sprint("equal", i))
		for _, v := range values {
			wantOK(t, "put", s.Put(ctx, puts, k, []byte(v), at(1), 0, metadata.One))
		}
		wantRow(t, s, puts, metadata.Row{Key: k, Value: []byte("b"), Written: at(1)})
	}
	wantOK(t, "remove", s.Remove(ctx, puts, key("equal0"), at(1), metadata.One))
	wantNoRow(t, s, puts, key("equal0"))
	wantOK(t, "put", s.Put(ctx, puts, key("equal0"), []byte("z"), at(1), 0, metadata.One))
	wantNoRow(t, s, puts, key("equal0"))
}

func removeShadows(t *testing.T, s metadata.Store) {
	ctx, k := t.Context(), key("a")
	wantOK(t, "remove of no row", s.Remove(ctx, puts, k, at(5), metadata.One))
	wantOK(t, "older put", s.Put(ctx, puts, k, []byte("old"), at(4), 0, metadata.One))
	wantNoRow(t, s, puts, k)
	wantOK(t, "later put", s.Put(ctx, puts, k, []byte("new"), at(6), 0, metadata.One))
	wantRow(t, s, puts, metadata.Row{Key: k, Value: []byte("new"), Written: at(6)})
	wantOK(t, "older remove", s.Remove(ctx, puts, k, at(5), metadata.One))
	wantRow(t, s, puts, metadata.Row{Key: k, Value: []byte("new"), Written: at(6)})
	wantOK(t, "later remove", s.Remove(ctx, puts, k, at(7), metadata.One))
	wantNoRow(t, s, puts, k)
}

func putAll(t *testing.T, s metadata.Store) {
	ctx := t.Context()
	wantOK(t, "put", s.Put(ctx, puts, key("row-002"), []byte("later"), at(50), 0, metadata.One))
	var rows, want []metadata.Row
	for i := range 40 {
		value := bytes.Repeat([]byte{byte(i)}, 100<<10) // together more than one write of any store
		rows = append(rows, metadata.Row{Key: key(fmt.Sprintf("row-%03d", i)), Value: value, Written: at(10)})
	}
	want = append(want, rows...)
	want[2] = metadata.Row{Key: key("row-002"), Value: []byte("later"), Written: at(50)}
	again := metadata.Row{Key: key("row-003"), Value: []byte("again"), Written: at(11)}
	want[3] = again
	rows = append(rows, again, metadata.Row{Key: key("row-003"), Value: []byte("older"), Written: at(9)})
	wantOK(t, "put all", s.PutAll(ctx, puts, rows, metadata.Quorum))
	got, err := listAll(ctx, s, puts, "p", 7)
	wantOK(t, "list", err)
	if len(got) != len(want) {
		t.Fatalf("list holds %d rows, want %d", len(got), len(want))
	}
	for i, w := range want { // not by cmp, which is slow on large values
		if g := got[i]; g.Key != w.Key || !g.Written.Equal(w.Written) || !bytes.Equal(g.Value, w.Value) {
			t.Errorf("row %s: %d bytes written at %s, want %d at %s", w.Key.Row, len(g.Value), g.Written, len(w.Value), w.Written)
		}
	}
	wantOK(t, "put of nothing", s.PutAll(ctx, puts, nil, metadata.One))
}

func listPages(t *testing.T, s metadata.Store) {
	ctx := t.Context()
	var want []metadata.Row
	// Rows that order differently as bytes, as numbers, and when keys are joined carelessly.
	for _, row := range []string{"\x01", "/", "/a", "/a/b", "/a\x01", "/a-b", "/ab", "0", "10", "9", "A", "a", "a\xff", "b", "é"} {
		v := inserted(t, s, key(row), row)
		want = append(want, metadata.Row{Key: key(row), Value: []byte(row), Version: v})
	}
	byRow := cmpopts.SortSlices(func(a, b metadata.Row) bool { return a.Key.Row < b.Key.Row })
	for _, limit := range []int{1, 2, 4, len(want) - 1, len(want), len(want) + 1} {
		got, err := listAll(ctx, s, swaps, "p", limit)
		wantOK(t, "list", err)
		for i := 1; i < len(got); i++ {
			if got[i-1].Key.Row >= got[i].Key.Row {
				t.Fatalf("limit %d: %q comes before %q", limit, got[i-1].Key.Row, got[i].Key.Row)
			}
		}
		if diff := cmp.Diff(want, got, byRow); diff != "" {
			t.Fatalf("limit %d (-want +got):\n%s", limit, diff)
		}
	}
	rows, more, err := s.List(ctx, swaps, "p", "a\x01", 2, metadata.Serial) // after a row that is not there
	if err != nil || !more || len(rows) != 2 || rows[0].Key.Row != "a\xff" {
		t.Errorf("list after a missing row: %d rows, more %v, %v", len(rows), more, err)
	}
	if rows, more, err := s.List(ctx, swaps, "p", "\xff", 2, metadata.Serial); err != nil || more || len(rows) != 0 {
		t.Errorf("list after the last row: %v %v %v", rows, more, err)
	}
	for _, limit := range []int{1, 2, 100} { // without most of them, also at both ends
		var got []string
		for after, more := "", true; more; {
			var some []metadata.Row
			some, more, err = metadata.ListWhere(ctx, s, swaps, "p", after, limit, metadata.Serial, func(row string) bool { return row == "/a" || row == "9" || row == "a" })
			wantOK(t, "list some", err)
			for _, r := range some {
				after = r.Key.Row
				got = append(got, after)
			}
		}
		if diff := cmp.Diff([]string{"/a", "9", "a"}, got); diff != "" {
			t.Errorf("some rows, limit %d (-want +got):\n%s", limit, diff)
		}
	}
}

func listLargeRows(t *testing.T, s metadata.Store) {
	value := bytes.Repeat([]byte("x"), metadata.MaxValue)
	for i := range 40 {
		wantOK(t, "insert", s.Insert(t.Context(), swaps, key(fmt.Sprintf("%03d", i)), value))
	}
	rows, err := listAll(t.Context(), s, swaps, "p", 1000)
	if err != nil || len(rows) != 40 {
		t.Errorf("list: %d rows, %v; want 40", len(rows), err)
	}
}

func partitions(t *testing.T, s metadata.Store) {
	ctx := t.Context()
	other := metadata.Table{Name: "test-cas-p", Rule: metadata.RuleCAS}
	rows := map[metadata.Table][]metadata.Key{
		swaps: {{Partition: "p", Row: "a"}, {Partition: "p", Row: "b"}, {Partition: "pa", Row: "b"}, {Partition: "p\x01", Row: "a"}, {Partition: "q", Row: "p"}},
		other: {{Partition: "p", Row: "a"}, {Partition: "a", Row: "p"}},
	}
	for table, keys := range rows {
		for _, k := range keys {
			wantOK(t, "insert", s.Insert(ctx, table, k, []byte(table.Name+k.Partition+k.Row)))
		}
	}
	for table, keys := range rows {
		count := map[string]int{}
		for _, k := range keys {
			count[k.Partition]++
			if got, err := s.Get(ctx, table, k, metadata.Serial); err != nil || string(got.Value) != table.Name+k.Partition+k.Row {
				t.Errorf("%s %q: got %q, %v", table.Name, k, got.Value, err)
			}
		}
		for partition, want := range count {
			if got, err := listAll(ctx, s, table, partition, 10); err != nil || len(got) != want {
				t.Errorf("%s %q has %d rows, want %d (%v)", table.Name, partition, len(got), want, err)
			}
		}
	}
}

func badCalls(t *testing.T, s metadata.Store) {
	ctx := t.Context()
	long := strings.Repeat("x", metadata.MaxKey+1)
	for _, k := range []metadata.Key{{}, {Partition: "p"}, {Row: "r"}, {Partition: "p", Row: "a\x00b"}, {Partition: "a\x00b", Row: "r"}, {Partition: long, Row: "r"}, {Partition: "p", Row: long}} {
		what := fmt.Sprintf("key %.20q", k)
		_, err := s.Get(ctx, swaps, k, metadata.One)
		wantCode(t, "get "+what, err, core.CodeBadArgument)
		wantCode(t, "insert "+what, s.Insert(ctx, swaps, k, nil), core.CodeBadArgument)
		wantCode(t, "update "+what, s.Update(ctx, swaps, k, 1, nil, 0), core.CodeBadArgument)
		wantCode(t, "delete "+what, s.Delete(ctx, swaps, k, 1), core.CodeBadArgument)
		wantCode(t, "put "+what, s.Put(ctx, puts, k, nil, at(1), 0, metadata.One), core.CodeBadArgument)
		wantCode(t, "put all "+what, s.PutAll(ctx, puts, []metadata.Row{{Key: k, Written: at(1)}}, metadata.One), core.CodeBadArgument)
		wantCode(t, "remove "+what, s.Remove(ctx, puts, k, at(1), metadata.One), core.CodeBadArgument)
	}
	k, large := key("a"), make([]byte, metadata.MaxValue+1)
	wantCode(t, "large insert", s.Insert(ctx, swaps, k, large), core.CodeTooLarge)
	wantCode(t, "large update", s.Update(ctx, swaps, k, 1, large, 0), core.CodeTooLarge)
	wantCode(t, "large put", s.Put(ctx, puts, k, large, at(1), 0, metadata.One), core.CodeTooLarge)
	good := metadata.Row{Key: key("good"), Written: at(1)}
	wantCode(t, "large put all", s.PutAll(ctx, puts, []metadata.Row{good, {Key: k, Value: large, Written: at(1)}}, metadata.One), core.CodeTooLarge)
	wantNoRow(t, s, puts, good.Key)
	wantCode(t, "put to a CAS table", s.Put(ctx, swaps, k, nil, at(1), 0, metadata.One), core.CodeBadArgument)
	wantCode(t, "put all to a CAS table", s.PutAll(ctx, swaps, []metadata.Row{good}, metadata.One), core.CodeBadArgument)
	wantCode(t, "remove from a CAS table", s.Remove(ctx, swaps, k, at(1), metadata.One), core.CodeBadArgument)
	wantCode(t, "insert into a put table", s.Insert(ctx, puts, k, nil), core.CodeBadArgument)
	wantCode(t, "update in a put table", s.Update(ctx, puts, k, 1, nil, 0), core.CodeBadArgument)
	wantCode(t, "delete from a put table", s.Delete(ctx, puts, k, 1), core.CodeBadArgument)
	wantCode(t, "put without a time", s.Put(ctx, puts, k, nil, time.Time{}, 0, metadata.One), core.CodeBadArgument)
	_, _, err := s.List(ctx, swaps, "p", "", 0, metadata.One)
	wantCode(t, "list without a limit", err, core.CodeBadArgument)
	_, _, err = s.List(ctx, swaps, "", "", 1, metadata.One)
	wantCode(t, "list without a partition", err, core.CodeBadArgument)
	wantOK(t, "largest insert", s.Insert(ctx, swaps, metadata.Key{Partition: long[1:], Row: long[1:]}, large[1:]))
}

func valuesAreOwn(t *testing.T, s metadata.Store) {
	ctx := t.Context()
	value := []byte("kept")
	wantOK(t, "insert", s.Insert(ctx, swaps, key("a"), value))
	wantOK(t, "put", s.Put(ctx, puts, key("a"), value, at(1), 0, metadata.One))
	copy(value, "lost")
	for _, table := range []metadata.Table{swaps, puts} {
		for range 2 {
			got, err := s.Get(ctx, table, key("a"), metadata.Serial)
			wantOK(t, "get", err)
			rows, err := listAll(ctx, s, table, "p", 10)
			wantOK(t, "list", err)
			if string(got.Value) != "kept" || len(rows) != 1 || string(rows[0].Value) != "kept" {
				t.Fatalf("%s: get %q, list %d rows; want kept", table.Name, got.Value, len(rows))
			}
			copy(got.Value, "lost")
			copy(rows[0].Value, "lost")
		}
	}
}

func endedContext(t *testing.T, s metadata.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Get(ctx, swaps, key("a"), metadata.Serial)
	wantCode(t, "get", err, core.CodeUnavailable)
	_, _, err = s.List(ctx, swaps, "p", "", 1, metadata.Serial)
	wantCode(t, "list", err, core.CodeUnavailable)
	wantCode(t, "insert", s.Insert(ctx, swaps, key("a"), nil), core.CodeUnavailable)
	wantCode(t, "put", s.Put(ctx, puts, key("a"), nil, at(1), 0, metadata.One), core.CodeUnavailable)
	wantNoRow(t, s, swaps, key("a"))
	wantNoRow(t, s, puts, key("a"))
}

func closedStore(t *testing.T, s metadata.Store) {
	ctx := t.Context()
	ended := make(chan error, 1)
	var wg sync.WaitGroup
	began := make(chan struct{}, 1)
	wg.Go(func() {
		ended <- s.Watch(ctx, swaps, "p", func() {
			select {
			case began <- struct{}{}:
			default:
			}
		})
	})
	<-began
	wantOK(t, "close", s.Close())
	wg.Wait()
	wantCode(t, "watch", <-ended, core.CodeUnavailable)
	_, err := s.Get(ctx, swaps, key("a"), metadata.Serial)
	wantCode(t, "get", err, core.CodeUnavailable)
	_, _, err = s.List(ctx, swaps, "p", "", 1, metadata.One)
	wantCode(t, "list", err, core.CodeUnavailable)
	wantCode(t, "insert", s.Insert(ctx, swaps, key("a"), nil), core.CodeUnavailable)
	wantCode(t, "put", s.Put(ctx, puts, key("a"), nil, at(1), 0, metadata.One), core.CodeUnavailable)
	wantOK(t, "second close", s.Close())
}
