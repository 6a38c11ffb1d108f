package migration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// source is rows in order.
type source []metadata.Stored

func (s source) Stored(_ context.Context, table, partition, row string, each func(metadata.Stored) error) error {
	after := Position{table, partition, row}
	for _, r := range s {
		if compareTo(PositionOf(r), after) <= 0 {
			continue
		}
		if err := each(r); err != nil {
			return err
		}
	}
	return nil
}

func compareTo(a, b Position) int {
	return slices.Compare([]string{a.Table, a.Partition, a.Row}, []string{b.Table, b.Partition, b.Row})
}

// target keeps loaded rows apart from those that are changed by calls.
type target struct {
	*memory.Store
	rows  map[Position]metadata.Stored
	loads int
	fail  func(load int) error // of a load
}

func newTarget(t *testing.T) *target {
	s := &target{Store: memory.New(), rows: make(map[Position]metadata.Stored), fail: func(int) error { return nil }}
	t.Cleanup(func() { s.Store.Close() })
	return s
}

// Parts makes one write of each window.
func (t *target) Parts(rows []metadata.Stored) [][]metadata.Stored {
	return [][]metadata.Stored{slices.Clone(rows)}
}

func (t *target) Load(_ context.Context, rows []metadata.Stored) error {
	t.loads++
	if err := t.fail(t.loads); err != nil {
		return err
	}
	for _, r := range rows {
		t.rows[PositionOf(r)] = r
	}
	return nil
}

func (t *target) Page(_ context.Context, place []byte) ([]metadata.Stored, []byte, error) {
	return page(t.Store, t.rows, place)
}

// pageRows is how many rows a page has.
const pageRows = 500

// page is a page of rows, in order, and before them the record of the copy.
func page(s metadata.Store, rows map[Position]metadata.Stored, place []byte) (all []metadata.Stored, next []byte, err error) {
	if row, err := s.Get(context.Background(), metadata.Settings, key, metadata.Serial); err == nil {
		all = append(all, metadata.Stored{Table: metadata.Settings, Row: row})
	}
	all = append(all, slices.SortedFunc(maps.Values(rows), func(a, b metadata.Stored) int { return compareTo(PositionOf(a), PositionOf(b)) })...)
	from := 0
	if place != nil {
		from, err = strconv.Atoi(string(place))
	}
	if to := from + pageRows; to < len(all) {
		return all[from:to], []byte(strconv.Itoa(to)), err
	}
	return all[from:], nil, err
}

// some is n rows of three tables; every tenth put row ends within a minute.
func some(n int) (s source) {
	for i := range n {
		k := metadata.Key{Partition: fmt.Sprint("p", i%7), Row: fmt.Sprintf("r%06d", i)}
		switch {
		case i%3 == 0:
			s = append(s, metadata.Stored{Table: metadata.Queues, Row: metadata.Row{Key: k, Value: []byte("{}"), Version: metadata.Version(i + 1)}})
		case i%3 == 1:
			s = append(s, metadata.Stored{Table: metadata.Extents, Row: metadata.Row{Key: k, Value: []byte(k.Row), Written: time.UnixMicro(int64(i))}})
		default:
			r := metadata.Stored{Table: metadata.Audit, Row: metadata.Row{Key: k, Value: []byte("a"), Written: time.UnixMicro(int64(i))}, Expires: time.Now().Add(48 * time.Hour)}
			if i%10 == 0 {
				r.Expires = time.Now().Add(time.Minute)
			}
			s = append(s, r)
		}
	}
	slices.SortFunc(s, func(a, b metadata.Stored) int { return compareTo(PositionOf(a), PositionOf(b)) })
	return s
}

var cluster, other = core.NewID(time.UnixMilli(1)), core.NewID(time.UnixMilli(2))

var call = Call{Cluster: cluster, Copier: core.NewID(time.UnixMilli(3))}

func quiet(Progress) {}

func wantCode(t *testing.T, what string, err error, code core.Code, text string) {
	t.Helper()
	if core.CodeOf(err) != code || err != nil && !strings.Contains(err.Error(), text) {
		t.Errorf("%s: got %v, want %s with %q", what, err, code, text)
	}
}

func TestCopy_AllStates(t *testing.T) {
	ctx, from, to := t.Context(), some(2500), newTarget(t)
	if err := Use(ctx, to); err != nil {
		t.Errorf("a server starts on a store that nobody copied to: %v", err)
	}
	steps := 0
	counts, err := Copy(ctx, from, to, call, func(Progress) { steps++ })
	if err != nil {
		t.Fatal(err)
	}
	if len(counts) != 3 || len(to.rows) != len(from) || steps < 5 {
		t.Errorf("%v, %d rows of %d, %d steps told", counts, len(to.rows), len(from), steps)
	}
	wantCode(t, "a server starts before the copy is finished", Use(ctx, to), core.CodeConflict, "is not complete")
	wantCode(t, "another cluster finishes it", Finish(ctx, to, Call{Cluster: other}), core.CodeConflict, "of another cluster, "+cluster.String())
	for range 2 {
		if err := Finish(ctx, to, call); err != nil {
			t.Fatal(err)
		}
	}
	_, err = Copy(ctx, from, to, call, quiet)
	wantCode(t, "a second copy", err, core.CodeConflict, "that copy is complete")
	wantCode(t, "undone by another cluster", Undo(ctx, to, other, true), core.CodeConflict, "of another cluster")
	for range 2 {
		if err := Use(ctx, to); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, "undone after the start", Undo(ctx, to, cluster, true), core.CodeConflict, "a server has started")
}

func TestCopy_Undone(t *testing.T) {
	ctx, to := t.Context(), newTarget(t)
	wantCode(t, "without a copy", Undo(ctx, to, cluster, true), core.CodeNotFound, "")
	if _, err := Copy(ctx, some(10), to, call, quiet); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{Finish(ctx, to, call), Undo(ctx, to, cluster, true), Undo(ctx, to, cluster, true)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, "a server starts", Use(ctx, to), core.CodeConflict, "was undone")
	wantCode(t, "it is finished", Finish(ctx, to, call), core.CodeConflict, "is undone")
}

// TestCopy_GoesOnWhereItWasInterrupted has the third window fail: the first two are not written again.
func TestCopy_GoesOnWhereItWasInterrupted(t *testing.T) {
	ctx, from, to := t.Context(), some(4500), newTarget(t)
	broken := errors.New("a node is away")
	to.fail = func(load int) error {
		if load == 3 {
			return broken
		}
		return nil
	}
	if _, err := Copy(ctx, from, to, call, quiet); !errors.Is(err, broken) {
		t.Fatalf("got %v", err)
	}
	_, err := Copy(ctx, from, to, Call{Cluster: other}, quiet)
	wantCode(t, "another cluster goes on", err, core.CodeConflict, "metadata of another cluster")
	if _, err := Copy(ctx, from, to, call, quiet); err != nil {
		t.Fatal(err)
	}
	if to.loads != 3+3 {
		t.Errorf("%d windows were written, want 3, of which one failed, and 3 more", to.loads)
	}
}

func TestCopy_RefusesAStoreWithRows(t *testing.T) {
	to := newTarget(t)
	r := some(1)[0]
	to.rows[PositionOf(r)] = r
	_, err := Copy(t.Context(), some(10), to, call, quiet)
	wantCode(t, "the copy", err, core.CodeConflict, "is not empty, it has queue")
}

func TestCopy_FindsEveryDifference(t *testing.T) {
	for what, spoil := range map[string]func(rows map[Position]metadata.Stored, p Position){
		"a row is missing": func(rows map[Position]metadata.Stored, p Position) { delete(rows, p) },
		"a value differs": func(rows map[Position]metadata.Stored, p Position) {
			r := rows[p]
			r.Row.Value = []byte("x")
			rows[p] = r
		},
		"a version differs": func(rows map[Position]metadata.Stored, p Position) {
			r := rows[p]
			r.Row.Version++
			rows[p] = r
		},
		"there is one more": func(rows map[Position]metadata.Stored, p Position) {
			r := rows[p]
			r.Row.Key.Row += "x"
			rows[PositionOf(r)] = r
		},
	} {
		from, to := some(100), newTarget(t)
		if _, err := Copy(t.Context(), from, to, call, quiet); err != nil {
			t.Fatal(err)
		}
		spoil(to.rows, PositionOf(from[len(from)-1])) // of a CAS table: it is the last one in order
		_, err := compare(t.Context(), newLink(quiet), from, to)
		wantCode(t, what, err, core.CodeCorrupt, "table queue differs")
	}
}

// TestCopy_FindsWrongEnds has rows of the copy end at other times, or never. Some seconds do not count.
func TestCopy_FindsWrongEnds(t *testing.T) {
	for what, c := range map[string]struct {
		spoil func(end time.Time) time.Time
		wrong bool
	}{
		"all live on":      {func(time.Time) time.Time { return time.Time{} }, true},
		"all end too late": {func(end time.Time) time.Time { return end.Add(time.Minute) }, true},
		"all end early":    {func(end time.Time) time.Time { return end.Add(-time.Minute) }, true},
		"seconds":          {func(end time.Time) time.Time { return end.Add(2 * time.Second) }, false},
	} {
		from, to := some(100), newTarget(t)
		if _, err := Copy(t.Context(), from, to, call, quiet); err != nil {
			t.Fatal(err)
		}
		for p, r := range to.rows {
			if !r.Expires.IsZero() {
				r.Expires = c.spoil(r.Expires)
				to.rows[p] = r
			}
		}
		_, err := compare(t.Context(), newLink(quiet), from, to)
		if c.wrong {
			wantCode(t, what, err, core.CodeCorrupt, "table audit differs")
		} else if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestCopy_ARowThatEndsMeanwhile is in the embedded store only when both are compared.
func TestCopy_ARowThatEndsMeanwhile(t *testing.T) {
	from, to := some(100), newTarget(t)
	if _, err := Copy(t.Context(), from, to, call, quiet); err != nil {
		t.Fatal(err)
	}
	for p, r := range to.rows {
		if !r.Expires.IsZero() && time.Until(r.Expires) < time.Hour {
			delete(to.rows, p)
		}
	}
	if _, err := compare(t.Context(), newLink(quiet), from, to); err != nil {
		t.Error(err)
	}
}
