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
			list = append(list, entry{row, "a", 0})
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
		"many attempts to insert a row":  {map[int][]entry{0: {{"b", "x", 0}, {"b", "y", 0}, {"b", "z", 0}}, 1: e("a", "c")}, entries{[]entry{{"a", "a", 0}, {"b", "x", 0}, {"b", "y", 0}, {"b", "z", 0}}, "b", true}},
		"rows order before the attempts": {map[int][]entry{0: {{"b", "x", 0}}, 1: {{"a", "z", 0}}}, entries{list: []entry{{"a", "z", 0}, {"b", "x", 0}}}},
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
	got := byRow([]entry{{"a", "1", 0}, {"b", "1", 0}, {"b", "2", 0}, {"c", "1", 0}})
	want := [][]entry{{{"a", "1", 0}}, {{"b", "1", 0}, {"b", "2", 0}}, {{"c", "1", 0}}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(entry{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEntry_Superfluous(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	e := entry{"row", newAttempt(now), 0}
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

func TestEntry_Begun(t *testing.T) {
	at := time.UnixMilli(1_800_000_000_123)
	if got := (entry{"row", newAttempt(at), 0}).begun(); !got.Equal(at) {
		t.Errorf("got %s, want %s", got, at)
	}
	if got := (entry{"row", "damaged", 0}).begun(); !got.IsZero() {
		t.Errorf("got %s for a damaged attempt, want no time", got)
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
		if err := s.addEntry(ctx, table, "p", entry{row, attempt, time.Now().UnixMicro()}); err != nil {
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
	for i := range missing {
		now := time.Now()
		if err := s.addEntry(ctx, table, "p", entry{fmt.Sprintf("a%03d", i), newAttempt(now), now.UnixMicro()}); err != nil {
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

// Rows whose entries were lost are listed again after Reindex, also where an entry was removed before.
func TestStore_Reindex(t *testing.T) {
	s := open(t)
	defer s.Close()
	ctx, table := t.Context(), metadata.Names
	for _, row := range []string{"a", "b", "deleted"} {
		if err := s.Insert(ctx, table, metadata.Key{Partition: "p", Row: row}, nil); err != nil {
			t.Fatal(err)
		}
	}
	deleted, err := s.Get(ctx, table, metadata.Key{Partition: "p", Row: "deleted"}, metadata.Serial)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(ctx, table, deleted.Key, deleted.Version); err != nil {
		t.Fatal(err)
	}
	part, err := s.listEntries(ctx, table, "p", "", 10, metadata.Quorum)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range part.list {
		if err := s.removeEntry(ctx, table, "p", e); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 2 {
		if rows, err := s.Reindex(ctx); err != nil || rows != 2 {
			t.Errorf("round %d: %d rows, %v; want 2", round, rows, err)
		}
		rows, more, err := s.List(ctx, table, "p", "", 10, metadata.Quorum)
		if err != nil || more || len(rows) != 2 || rows[0].Key.Row != "a" || rows[1].Key.Row != "b" {
			t.Errorf("round %d: list holds %v (%v), want a and b", round, rows, err)
		}
	}
}
