// Package metadatatest owns the conformance suite of metadata.Store. It also checks stores whose calls fail, whose
// answers get lost and whose reads are stale.
package metadatatest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// Option adds to what Run checks.
type Option func(*options)

type options struct {
	reopen  func(*testing.T, metadata.Store) metadata.Store
	without []string
}

// WithReopen also checks that what was answered is there after the store was closed and opened again; reopen does both.
func WithReopen(reopen func(*testing.T, metadata.Store) metadata.Store) Option {
	return func(o *options) { o.reopen = reopen }
}

// Without leaves out tests of the part that allows no unknown outcome, by their names.
func Without(tests ...string) Option {
	return func(o *options) { o.without = append(o.without, tests...) }
}

// Run checks the store that open makes; each subtest opens its own, empty one, and closes it.
func Run(t *testing.T, open func(*testing.T) metadata.Store, opts ...Option) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	t.Run("Exact", func(t *testing.T) { exact(t, open, o.without) })
	t.Run("Faulty", func(t *testing.T) { faults(t, open) })
	if o.reopen != nil {
		t.Run("Reopen", func(t *testing.T) { persistence(t, open, o.reopen) })
	}
}

// RunUncertain runs the part of Run that allows that the outcome of a change is unknown: for stores that lose answers.
func RunUncertain(t *testing.T, open func(*testing.T) metadata.Store) { faults(t, open) }

// exact runs the tests whose outcome is certain: on the store, and on one that is slow, stale at One and often
// unavailable.
func exact(t *testing.T, open func(*testing.T) metadata.Store, without []string) {
	tests := map[string]func(*testing.T, metadata.Store){
		"CASRow":         casRow,
		"CASRowAgain":    casRowAgain,
		"CASRace":        casRace,
		"PutLatestWins":  putLatestWins,
		"PutEqualTimes":  putEqualTimes,
		"RemoveShadows":  removeShadows,
		"TTL":            ttl,
		"CASEnds":        casEnds,
		"PutAll":         putAll,
		"GetRows":        getRows,
		"ListPages":      listPages,
		"ListLargeRows":  listLargeRows,
		"Partitions":     partitions,
		"BadCalls":       badCalls,
		"ValuesAreOwn":   valuesAreOwn,
		"HintShards":     hintShards,
		"MoveHints":      moveHints,
		"Watch":          watch,
		"WatchPartition": watchPartition,
		"EndedContext":   endedContext,
		"Closed":         closedStore,
	}
	run := func(name string, test func(*testing.T)) {
		if !slices.Contains(without, name) {
			t.Run(name, test)
		}
	}
	for name, test := range tests {
		run(name, func(t *testing.T) { test(t, opened(t, open)) })
	}
	for _, name := range []string{"CASRow", "CASRowAgain", "PutLatestWins", "RemoveShadows", "PutAll", "GetRows", "ListPages", "Partitions", "BadCalls"} {
		run(name+"Slow", func(t *testing.T) { tests[name](t, slow(opened(t, open))) })
	}
}

func opened(t *testing.T, open func(*testing.T) metadata.Store) metadata.Store {
	s := open(t)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// The tables of the suite.
var (
	swaps = metadata.Table{Name: "test-cas", Rule: metadata.RuleCAS}
	puts  = metadata.Table{Name: "test-put", Rule: metadata.RulePut}
)

// start is when the suite's writers begin; writers choose their timestamps.
var start = time.UnixMicro(1_790_000_000_000_000)

func at(tick int) time.Time { return start.Add(time.Duration(tick) * metadata.Tick) }

func key(row string) metadata.Key { return metadata.Key{Partition: "p", Row: row} }

func wantCode(t *testing.T, what string, err error, want core.Code) {
	t.Helper()
	if got := core.CodeOf(err); got != want {
		t.Errorf("%s: got code %q (%v), want %q", what, got, err, want)
	}
}

func wantOK(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func wantRow(t *testing.T, s metadata.Store, table metadata.Table, want metadata.Row) {
	t.Helper()
	for _, c := range []metadata.Consistency{metadata.Quorum, metadata.Serial} {
		got, err := s.Get(t.Context(), table, want.Key, c)
		if err != nil {
			t.Fatalf("get %s: %v", want.Key.Row, err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("get %s (-want +got):\n%s", want.Key.Row, diff)
		}
	}
}

func wantNoRow(t *testing.T, s metadata.Store, table metadata.Table, k metadata.Key) {
	t.Helper()
	_, err := s.Get(t.Context(), table, k, metadata.Serial)
	wantCode(t, "get "+k.Row, err, core.CodeNotFound)
	rows, _, err := s.List(t.Context(), table, k.Partition, "", 1000, metadata.Serial)
	wantOK(t, "list", err)
	for _, r := range rows {
		if r.Key == k {
			t.Errorf("list holds %s, which get does not find", k.Row)
		}
	}
}

// listAll reads a partition in pages of limit.
func listAll(ctx context.Context, s metadata.Store, table metadata.Table, partition string, limit int) ([]metadata.Row, error) {
	var all []metadata.Row
	after := ""
	for {
		rows, more, err := s.List(ctx, table, partition, after, limit, metadata.Serial)
		if err != nil {
			return nil, err
		}
		if len(rows) > limit {
			return nil, fmt.Errorf("page has %d rows, limit is %d", len(rows), limit)
		}
		all = append(all, rows...)
		if !more {
			return all, nil
		}
		if len(rows) == 0 {
			return nil, fmt.Errorf("page after %q is empty and says there is more", after)
		}
		after = rows[len(rows)-1].Key.Row
	}
}
