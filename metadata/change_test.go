package metadata_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

type counter struct {
	N    int      `json:"n"`
	Tags []string `json:"tags,omitempty"`
	Spec struct {
		Known int `json:"known,omitempty"`
	} `json:"spec,omitzero"`
}

var (
	counters = metadata.Table{Name: "counter", Rule: metadata.RuleCAS}
	counterA = metadata.Key{Partition: "p", Row: "a"}
)

// answers is a store whose Updates and Inserts are done or not, and answered as told, one entry a call.
type answers struct {
	metadata.Store
	script []answer
	late   func() error
}

type answer struct {
	do   bool
	err  error
	late bool   // the call is done before the next one
	run  func() // after it
}

func (a *answers) next(call func() error) error {
	if a.late != nil {
		a.late()
		a.late = nil
	}
	if len(a.script) == 0 {
		return call()
	}
	now := a.script[0]
	a.script = a.script[1:]
	if now.late {
		a.late = call
	}
	if now.do {
		if err := call(); err != nil {
			return err
		}
	}
	if now.run != nil {
		now.run()
	}
	return now.err
}

func (a *answers) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte, ttl time.Duration) error {
	return a.next(func() error { return a.Store.Update(ctx, t, k, old, value, ttl) })
}

func (a *answers) Insert(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) error {
	return a.next(func() error { return a.Store.Insert(ctx, t, k, value) })
}

func (a *answers) Delete(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version) error {
	return a.next(func() error { return a.Store.Delete(ctx, t, k, old) })
}

// create makes the counter and returns its first version.
func create(t *testing.T, s metadata.Store, v counter) metadata.Version {
	t.Helper()
	if err := metadata.Create(t.Context(), s, counters, counterA, v); err != nil {
		t.Fatal(err)
	}
	row, err := s.Get(t.Context(), counters, counterA, metadata.Serial)
	if err != nil {
		t.Fatal(err)
	}
	return row.Version
}

func add(ctx context.Context, s metadata.Store, n int) (counter, error) {
	return metadata.Change(ctx, s, counters, counterA, func(c *counter) error {
		c.N += n
		return nil
	})
}

func wantCounter(t *testing.T, s metadata.Store, n int, version metadata.Version) {
	t.Helper()
	got, v, err := metadata.Read[counter](t.Context(), s, counters, counterA, metadata.Serial)
	if err != nil || got.N != n || v != version {
		t.Errorf("counter is %d at version %d (%v), want %d at %d", got.N, v, err, n, version)
	}
}

func TestChange_Concurrent(t *testing.T) {
	s := memory.New()
	first := create(t, s, counter{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				if _, err := add(t.Context(), s, 1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	wantCounter(t, s, 160, first+160)
}

func TestChange_LostAnswer(t *testing.T) {
	lost := core.Errorf(core.CodeUnknown, "lost")
	for name, test := range map[string]struct {
		script  func(metadata.Store) []answer
		code    core.Code
		n       int
		changes metadata.Version
	}{
		"applied":     {func(metadata.Store) []answer { return []answer{{do: true, err: lost}} }, "", 1, 1},
		"not applied": {func(metadata.Store) []answer { return []answer{{err: lost}, {err: lost}} }, "", 1, 1},
		"another was first, with an equal value": {func(s metadata.Store) []answer {
			return []answer{{err: lost, run: func() { add(t.Context(), s, 1) }}}
		}, "", 2, 2},
		"covered by another": {func(s metadata.Store) []answer {
			return []answer{{do: true, err: lost, run: func() { add(t.Context(), s, 5) }}}
		}, core.CodeUnknown, 6, 2},
		"then unavailable": {func(metadata.Store) []answer {
			return []answer{{err: lost}, {err: core.ErrUnavailable}}
		}, core.CodeUnknown, 0, 0},
		"applied late": {func(s metadata.Store) []answer {
			return []answer{{err: lost, late: true}, {do: true}}
		}, "", 1, 1},
		"unavailable": {func(metadata.Store) []answer { return []answer{{err: core.ErrUnavailable}} }, core.CodeUnavailable, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inner := memory.New()
			first := create(t, inner, counter{})
			s := &answers{Store: inner, script: test.script(inner)}
			if _, err := add(t.Context(), s, 1); core.CodeOf(err) != test.code {
				t.Errorf("got %v, want code %q", err, test.code)
			}
			wantCounter(t, inner, test.n, first+test.changes)
		})
	}
}

func TestChange_FunctionDecides(t *testing.T) {
	s := memory.New()
	first := create(t, s, counter{N: 1, Tags: []string{"x"}})
	stop := errors.New("stop")
	for _, result := range []error{metadata.ErrNoChange, stop, nil} {
		got, err := metadata.Change(t.Context(), s, counters, counterA, func(c *counter) error {
			if result != nil {
				c.N, c.Tags[0] = 7, "y"
			}
			return result
		})
		if want := result; want == metadata.ErrNoChange && err != nil || want == stop && err != stop {
			t.Errorf("function returned %v: got %v", want, err)
		}
		if diff := cmp.Diff(counter{N: 1, Tags: []string{"x"}}, got); diff != "" {
			t.Errorf("function returned %v (-want +got):\n%s", result, diff)
		}
	}
	wantCounter(t, s, 1, first)
	if _, err := metadata.Change(t.Context(), s, counters, metadata.NameKey("/no/row"), func(*counter) error { return nil }); core.CodeOf(err) != core.CodeNotFound {
		t.Errorf("change of no row: %v", err)
	}
}

func TestChange_EndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memory.New()
		create(t, inner, counter{})
		s := &answers{Store: inner}
		for range 10_000 {
			s.script = append(s.script, answer{err: core.Errorf(core.CodeConflict, "other version")})
		}
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := add(ctx, s, 1); core.CodeOf(err) != core.CodeUnavailable {
			t.Errorf("got %v, want unavailable", err)
		}
		if d := time.Since(begin); d != 3*time.Second {
			t.Errorf("took %s, deadline was 3s", d)
		}
		if tries := 10_000 - len(s.script); tries > 100 {
			t.Errorf("%d tries in 3 s: pauses do not grow", tries)
		}
	})
}

func TestCreate_LostAnswer(t *testing.T) {
	lost := core.Errorf(core.CodeUnknown, "lost")
	for name, test := range map[string]struct {
		script func(metadata.Store) []answer
		code   core.Code
	}{
		"applied":          {func(metadata.Store) []answer { return []answer{{do: true, err: lost}} }, ""},
		"not applied":      {func(metadata.Store) []answer { return []answer{{err: lost}} }, ""},
		"then unavailable": {func(metadata.Store) []answer { return []answer{{err: lost}, {err: core.ErrUnavailable}} }, core.CodeUnknown},
		"another was first": {func(s metadata.Store) []answer {
			return []answer{{err: lost, run: func() { create(t, s, counter{}) }}}
		}, core.CodeExists},
	} {
		t.Run(name, func(t *testing.T) {
			inner := memory.New()
			s := &answers{Store: inner, script: test.script(inner)}
			if err := metadata.Create(t.Context(), s, counters, counterA, counter{}); core.CodeOf(err) != test.code {
				t.Errorf("got %v, want code %q", err, test.code)
			}
		})
	}
}

func TestDelete_LostAnswer(t *testing.T) {
	lost := core.Errorf(core.CodeUnknown, "lost")
	for name, test := range map[string]struct {
		off    metadata.Version // from the row's
		script []answer
		code   core.Code
	}{
		"applied":       {0, []answer{{do: true, err: lost}}, ""},
		"not applied":   {0, []answer{{err: lost}, {err: lost}}, ""},
		"other version": {1, nil, core.CodeConflict},
	} {
		t.Run(name, func(t *testing.T) {
			inner := memory.New()
			first := create(t, inner, counter{})
			s := &answers{Store: inner, script: test.script}
			if err := metadata.Delete(t.Context(), s, counters, counterA, first+test.off); core.CodeOf(err) != test.code {
				t.Errorf("got %v, want code %q", err, test.code)
			}
			_, err := inner.Get(t.Context(), counters, counterA, metadata.Serial)
			if gone := core.CodeOf(err) == core.CodeNotFound; gone != (test.code == "") {
				t.Errorf("row is gone: %v", gone)
			}
		})
	}
	if err := metadata.Delete(t.Context(), memory.New(), counters, counterA, 1); core.CodeOf(err) != core.CodeNotFound {
		t.Errorf("delete of no row: %v", err)
	}
}

func TestCreate_NeedsObject(t *testing.T) {
	s := memory.New()
	if err := metadata.Create(t.Context(), s, counters, counterA, 5); core.CodeOf(err) != core.CodeBadArgument {
		t.Errorf("number: %v", err)
	}
	if err := metadata.Create(t.Context(), s, counters, counterA, struct{}{}); err != nil {
		t.Errorf("empty object: %v", err)
	}
	if err := metadata.Create(t.Context(), s, counters, counterA, struct{}{}); core.CodeOf(err) != core.CodeExists {
		t.Errorf("second create: %v", err)
	}
}

func TestAllAndPrefix(t *testing.T) {
	s := memory.New()
	var want []string
	for i := range 10_000 {
		path := fmt.Sprintf("/%s/queue-%05d", []string{"s", "t", "t.x", "ta", "u"}[i%5], i)
		if err := metadata.Create(t.Context(), s, metadata.Names, metadata.NameKey(path), metadata.NameRecord{Spec: core.QueueSpec{Path: path}}); err != nil {
			t.Fatal(err)
		}
		if i%5 == 1 {
			want = append(want, path)
		}
	}
	n := 0
	for r, err := range metadata.All[metadata.NameRecord](t.Context(), s, metadata.Names, metadata.PartitionPath, metadata.One) {
		if err != nil || r.Value.Spec.Path != r.Key.Row || r.Version == 0 {
			t.Fatalf("row %q: %+v %v", r.Key.Row, r, err)
		}
		n++
	}
	if n != 10_000 {
		t.Errorf("all yields %d records, want 10000", n)
	}
	for _, limit := range []int{1999, 2000, 2001, 100, 333} {
		var got []string
		for after, more := "", true; more; {
			var page []metadata.Record[metadata.NameRecord]
			var err error
			page, more, err = metadata.Prefix[metadata.NameRecord](t.Context(), s, metadata.Names, metadata.PartitionPath, "/t/", after, limit, metadata.One)
			if err != nil || len(page) > limit || len(page) == 0 {
				t.Fatalf("page after %q: %d records of %d, %v", after, len(page), limit, err)
			}
			for _, r := range page {
				got = append(got, r.Key.Row)
			}
			after = got[len(got)-1]
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("limit %d (-want +got):\n%s", limit, diff)
		}
	}
}

func TestPrefix_IncludesEqualRow(t *testing.T) {
	s := memory.New()
	for _, row := range []string{"a", "ab", "ab\x01", "abc", "ac", "b"} {
		if err := metadata.Create(t.Context(), s, counters, metadata.Key{Partition: "p", Row: row}, counter{}); err != nil {
			t.Fatal(err)
		}
	}
	for prefix, want := range map[string]int{"ab": 3, "": 6, "ab\x01": 1, "abcd": 0, "c": 0, "a": 5} {
		got, more, err := metadata.Prefix[counter](t.Context(), s, counters, "p", prefix, "", 10, metadata.Serial)
		if err != nil || more || len(got) != want {
			t.Errorf("prefix %q: %d records, more %v, %v; want %d", prefix, len(got), more, err, want)
		}
	}
}

func TestRead_Corrupt(t *testing.T) {
	s := memory.New()
	if err := s.Insert(t.Context(), counters, counterA, []byte("no json")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := metadata.Read[counter](t.Context(), s, counters, counterA, metadata.Serial); core.CodeOf(err) != core.CodeCorrupt {
		t.Errorf("got %v, want corrupt", err)
	}
}
