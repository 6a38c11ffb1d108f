package cassandra

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

func TestMerge(t *testing.T) {
	e := func(rows ...string) (list []entry) {
		for _, row := range rows {
			list = append(list, entry{row, "a"})
		}
		return list
	}
	for name, test := range map[string]struct {
		parts map[int][]entry
		want  entries
	}{
		"nothing":                        {nil, entries{}},
		"all of all buckets":             {map[int][]entry{0: e("b", "d"), 5: e("a", "c")}, entries{list: e("a", "b", "c", "d")}},
		"a bucket with others":           {map[int][]entry{0: e("b", "d", "f"), 5: e("a", "e", "g")}, entries{e("a", "b", "d", "e", "f"), "f", true}},
		"the smallest end counts":        {map[int][]entry{0: e("b", "c", "d"), 5: e("a", "e", "g")}, entries{e("a", "b", "c", "d"), "d", true}},
		"many attempts to insert a row":  {map[int][]entry{0: {{"b", "x"}, {"b", "y"}, {"b", "z"}}, 1: e("a", "c")}, entries{[]entry{{"a", "a"}, {"b", "x"}, {"b", "y"}, {"b", "z"}}, "b", true}},
		"rows order before the attempts": {map[int][]entry{0: {{"b", "x"}}, 1: {{"a", "z"}}}, entries{list: []entry{{"a", "z"}, {"b", "x"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			got := merge(test.parts, 3)
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(entries{}, entry{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestByRow(t *testing.T) {
	got := byRow([]entry{{"a", "1"}, {"b", "1"}, {"b", "2"}, {"c", "1"}})
	want := [][]entry{{{"a", "1"}}, {{"b", "1"}, {"b", "2"}}, {{"c", "1"}}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(entry{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEntry_Superfluous(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	e := entry{"row", newAttempt(now)}
	const young, old = entryGrace - time.Second, entryGrace + time.Second
	for name, test := range map[string]struct {
		row  state
		age  time.Duration
		want bool
	}{
		"its row lives":                   {state{version: 1, live: true, created: e.attempt}, old, false},
		"its row was deleted":             {state{version: 2, created: e.attempt}, young, true},
		"its row may still come":          {state{}, young, false},
		"its row never came":              {state{}, old, true},
		"another's row is there":          {state{version: 1, live: true, created: "other"}, young, false},
		"another's row is there for long": {state{version: 1, live: true, created: "other"}, old, true},
		"another's marker is there":       {state{version: 1, created: "other"}, young, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := e.superfluous(test.row, now.Add(test.age)); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// The removal of an entry is later than the entry, and both are known without a clock.
func TestEntry_Written(t *testing.T) {
	at := time.UnixMilli(1_800_000_000_123)
	if got := (entry{"row", newAttempt(at)}).written(); got != at.UnixMicro() {
		t.Errorf("got %d, want %d", got, at.UnixMicro())
	}
	if got := (entry{"row", "damaged"}).written(); got != 0 {
		t.Errorf("got %d for a damaged attempt, want 0", got)
	}
}

// Listings remove entries that nobody needs, and never one of a row that is there or may come.
func TestStore_IndexIsCleaned(t *testing.T) {
	s := open(t)
	defer s.Close()
	ctx, table := t.Context(), metadata.Names
	k := func(row string) metadata.Key { return metadata.Key{Partition: "p", Row: row} }
	insert := func(row string) metadata.Version {
		t.Helper()
		if err := s.Insert(ctx, table, k(row), []byte("x")); err != nil {
			t.Fatal(err)
		}
		got, err := s.Get(ctx, table, k(row), metadata.Serial)
		if err != nil {
			t.Fatal(err)
		}
		return got.Version
	}
	left := func(row string) (n int) {
		t.Helper()
		part, err := s.listEntries(ctx, table, "p", "", 100, metadata.Serial)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range part.list {
			if e.row == row {
				n++
			}
		}
		return n
	}
	listed := func(c metadata.Consistency) (rows []string) {
		t.Helper()
		page, _, err := s.List(ctx, table, "p", "", 100, c)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page {
			rows = append(rows, r.Key.Row)
		}
		return rows
	}
	insert("kept")
	if err := s.Insert(ctx, table, k("kept"), nil); core.CodeOf(err) != core.CodeExists {
		t.Fatal(err)
	}
	if n := left("kept"); n != 1 {
		t.Errorf("%d entries after a second insert, want 1", n)
	}
	if err := s.Delete(ctx, table, k("deleted"), insert("deleted")); err != nil {
		t.Fatal(err)
	}
	long, now := newAttempt(time.Now().Add(-2*entryGrace)), newAttempt(time.Now())
	for row, attempt := range map[string]string{"never": long, "coming": now, "kept": long} {
		if err := s.addEntry(ctx, table, k(row), attempt); err != nil {
			t.Fatal(err)
		}
	}
	listed(metadata.One)
	for row, want := range map[string]int{"kept": 2, "deleted": 1, "never": 1, "coming": 1} {
		if n := left(row); n != want {
			t.Errorf("a list at One leaves %d entries of row %s, want %d", n, row, want)
		}
	}
	for _, c := range []metadata.Consistency{metadata.Quorum, metadata.Serial} {
		if diff := cmp.Diff([]string{"kept"}, listed(c)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		for row, want := range map[string]int{"kept": 1, "deleted": 0, "never": 0, "coming": 1} {
			if n := left(row); n != want {
				t.Errorf("a list leaves %d entries of row %s, want %d", n, row, want)
			}
		}
	}
	for _, row := range []string{"deleted", "never"} { // what was removed does not hide what comes
		insert(row)
	}
	if diff := cmp.Diff([]string{"deleted", "kept", "never"}, listed(metadata.Quorum)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A list goes on behind rows that are not there, however many.
func TestStore_ListPassesOverMissingRows(t *testing.T) {
	s := open(t)
	defer s.Close()
	ctx, table := t.Context(), metadata.Names
	const missing = 300
	var puts []statement
	for i := range missing {
		e := entry{fmt.Sprintf("a%03d", i), newAttempt(time.Now())}
		puts = append(puts, statement{s.indexText(addEntry), []any{s.name(table), []byte("p"), bucketOf(e.row), []byte(e.row), []byte(e.attempt), e.written()}})
	}
	for _, put := range puts {
		if _, err := s.session.write(ctx, writeAt(metadata.One), []statement{put}); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []string{"b", "c"} {
		if err := s.Insert(ctx, table, metadata.Key{Partition: "p", Row: row}, nil); err != nil {
			t.Fatal(err)
		}
	}
	rows, more, err := s.List(ctx, table, "p", "", 1, metadata.Quorum)
	if err != nil || !more || len(rows) != 1 || rows[0].Key.Row != "b" {
		t.Errorf("got %v, more %v (%v); want row b and more", rows, more, err)
	}
}
