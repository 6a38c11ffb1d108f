package metadatatest

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// Size of the histories.
const (
	historyClients = 3
	historyCalls   = 10 // of each client
	historySeeds   = 4
)

// faults runs what must hold while calls fail: histories of rows and counters, and races of creation.
func faults(t *testing.T, open func(*testing.T) metadata.Store) {
	tests := map[string]func(*testing.T, metadata.Store, uint64){
		"Rows":       rowHistory,
		"Counter":    counterHistory,
		"CreateOnce": createOnce,
		"Puts":       putsConverge,
		"PutAll":     putsInPart,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test(t, opened(t, open), 0) // without faults
			for seed := range uint64(historySeeds) {
				test(t, faultyStore(t, open, seed+1), seed+1)
				if t.Failed() {
					t.Fatalf("seed %d", seed+1)
				}
			}
		})
	}
}

type rowCall struct {
	call  string
	row   int
	old   metadata.Version
	value string
}

type rowAnswer struct {
	code    core.Code
	version metadata.Version
	value   string
}

// rowHistory races raw calls on two rows.
func rowHistory(t *testing.T, s metadata.Store, seed uint64) {
	h := newHistory()
	clients(historyClients, func(client int) {
		die := rand.New(rand.NewPCG(seed, uint64(client)))
		var seen metadata.Version
		for i := range historyCalls {
			in := rowCall{row: die.IntN(2), value: fmt.Sprintf("%d.%d", client, i), old: seen}
			in.call = []string{"get", "get", "insert", "update", "update", "update", "delete"}[die.IntN(7)]
			h.record(client, in, func() (any, error) {
				row, err := callRow(t.Context(), s, in)
				if err == nil && in.call == "get" {
					seen = row.Version
				}
				return rowAnswer{core.CodeOf(err), row.Version, string(row.Value)}, err
			})
		}
	})
	h.check(t, rowModel())
}

func callRow(ctx context.Context, s metadata.Store, in rowCall) (metadata.Row, error) {
	k := key(fmt.Sprint(in.row))
	switch in.call {
	case "get":
		return s.Get(ctx, swaps, k, metadata.Serial)
	case "insert":
		return metadata.Row{}, s.Insert(ctx, swaps, k, []byte(in.value))
	case "update":
		return metadata.Row{}, s.Update(ctx, swaps, k, in.old, []byte(in.value), 0)
	}
	return metadata.Row{}, s.Delete(ctx, swaps, k, in.old)
}

// rowModel is a CAS row: its version and its value. The version of an inserted row is the one that the first get of it
// answers, and above all versions of the rows deleted before. No client updates or deletes a row at a version that no
// get has answered.
func rowModel() porcupine.Model {
	type state struct {
		exists  bool
		version metadata.Version // 0: not known yet
		last    metadata.Version // of the row that was deleted before
		value   string
	}
	next := func(st state, in rowCall) (state, core.Code) {
		switch {
		case in.call == "insert" && st.exists:
			return st, core.CodeExists
		case in.call == "insert":
			return state{exists: true, last: st.last, value: in.value}, ""
		case !st.exists:
			return st, core.CodeNotFound
		case in.call == "get":
			return st, ""
		case st.version == 0 || st.version != in.old:
			return st, core.CodeConflict
		case in.call == "update":
			return state{true, st.version + 1, st.last, in.value}, ""
		}
		return state{last: st.version}, ""
	}
	return porcupine.Model{
		Partition: byKey(func(input any) int { return input.(rowCall).row }),
		Init:      func() any { return state{} },
		Step: func(current, input, output any) (bool, any) {
			st, in, out := current.(state), input.(rowCall), output.(rowAnswer)
			if out.code == core.CodeUnavailable {
				return true, st
			}
			after, code := next(st, in)
			if out.code == core.CodeUnknown {
				return true, after
			}
			if in.call != "get" || out.code != "" {
				return code == out.code, after
			}
			if st.version == 0 && out.version > st.last {
				after.version = out.version
			}
			return code == out.code && out.version == after.version && out.value == st.value, after
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %+v", input, output) },
	}
}

// byKey divides a history by what its calls are about: each part is linearizable for itself.
func byKey(of func(input any) int) func([]porcupine.Operation) [][]porcupine.Operation {
	return func(calls []porcupine.Operation) (parts [][]porcupine.Operation) {
		place := map[int]int{}
		for _, op := range calls {
			k := of(op.Input)
			if _, ok := place[k]; !ok {
				place[k] = len(parts)
				parts = append(parts, nil)
			}
			parts[place[k]] = append(parts[place[k]], op)
		}
		return parts
	}
}

type tally struct {
	N int `json:"n"`
}

// counterHistory adds by Change: with equal values everywhere, a change can be taken for another's.
func counterHistory(t *testing.T, s metadata.Store, seed uint64) {
	createCounter(t.Context(), s, 0)
	h := newHistory()
	clients(historyClients, func(client int) {
		for i := range historyCalls {
			in := counterCall{add: i%2 == 0}
			h.record(client, in, func() (any, error) { return callCounter(t.Context(), s, in) })
		}
	})
	h.check(t, counterModel())
}

type counterCall struct {
	counter int
	add     bool
	nth     int // see inTurn
}

func (c counterCall) key() metadata.Key { return key(fmt.Sprint("counter", c.counter)) }

// createCounter tries until the counter is there.
func createCounter(ctx context.Context, s metadata.Store, counter int) {
	for {
		switch err := metadata.Create(ctx, s, swaps, counterCall{counter: counter}.key(), tally{}); core.CodeOf(err) {
		case "", core.CodeExists:
			return
		}
	}
}

type counterAnswer struct {
	code core.Code
	n    int
}

// callCounter adds one, or reads.
func callCounter(ctx context.Context, s metadata.Store, in counterCall) (counterAnswer, error) {
	if !in.add {
		v, _, err := metadata.Read[tally](ctx, s, swaps, in.key(), metadata.Serial)
		return counterAnswer{core.CodeOf(err), v.N}, err
	}
	v, err := metadata.Change(ctx, s, swaps, in.key(), func(v *tally) error {
		v.N++
		return nil
	})
	return counterAnswer{core.CodeOf(err), v.N}, err
}

// counterModel is a number, and how many additions of unknown outcome have taken effect.
func counterModel() porcupine.Model {
	type state struct{ n, unknown int }
	parts := byKey(func(input any) int { return input.(counterCall).counter })
	return porcupine.Model{
		Partition: func(calls []porcupine.Operation) [][]porcupine.Operation { return inTurn(parts(calls)) },
		Init:      func() any { return state{} },
		Step: func(current, input, output any) (bool, any) {
			st, in, out := current.(state), input.(counterCall), output.(counterAnswer)
			after := st
			if in.add {
				after.n++
			}
			switch {
			case out.code == "":
				return out.n == after.n, after
			case out.code == core.CodeUnknown && in.add:
				after.unknown++
				return in.nth == after.unknown, after
			}
			return out.code == core.CodeUnavailable || out.code == core.CodeUnknown, st
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("add %v → %+v", input, output) },
	}
}

// inTurn numbers the additions of unknown outcome to each counter in the order in which they began, from 1. They are
// alike, and may take effect at any later time. So if any linear order explains the answers, one does in which they
// take effect in this order, and the search need not try each subset of them.
func inTurn(parts [][]porcupine.Operation) [][]porcupine.Operation {
	for _, calls := range parts {
		slices.SortStableFunc(calls, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
		n := 0
		for i, op := range calls {
			if in := op.Input.(counterCall); in.add && op.Output.(counterAnswer).code == core.CodeUnknown {
				n++
				in.nth = n
				calls[i].Input = in
			}
		}
	}
	return parts
}

// createOnce races Create: at most one succeeds, and what it stored is there.
func createOnce(t *testing.T, s metadata.Store, _ uint64) {
	const rows = 10
	for row := range rows {
		k := key(fmt.Sprint("once", row))
		var winner, winners, unknown atomic.Int64
		clients(4, func(client int) {
			switch err := metadata.Create(t.Context(), s, swaps, k, tally{client}); core.CodeOf(err) {
			case "":
				winner.Store(int64(client))
				winners.Add(1)
			case core.CodeUnknown:
				unknown.Add(1)
			case core.CodeExists, core.CodeUnavailable:
			default:
				t.Errorf("create: %v", err)
			}
		})
		got, _, err := metadata.Read[tally](t.Context(), patient{s}, swaps, k, metadata.Serial)
		if core.CodeOf(err) == core.CodeNotFound && winners.Load() == 0 {
			continue
		}
		if err != nil || winners.Load()+unknown.Load() == 0 || winners.Load() > 1 {
			t.Fatalf("row %d: %d winners, %d unknown; (%v)", row, winners.Load(), unknown.Load(), err)
		}
		if winners.Load() == 1 && int64(got.N) != winner.Load() {
			t.Fatalf("row %d: client %d won, the row is of %d", row, winner.Load(), got.N)
		}
	}
}

// putsConverge writes rows by one writer each: a reader at Quorum never sees less than what was answered.
func putsConverge(t *testing.T, s metadata.Store, _ uint64) {
	clients(4, func(client int) {
		k := key(fmt.Sprint("writer", client))
		answered := time.Time{}
		for tick := 1; tick <= 20; tick++ {
			if err := metadata.Write(t.Context(), s, puts, k, tally{tick}, at(tick), 0, metadata.One); err == nil {
				answered = at(tick)
			}
			row, err := patient{s}.Get(t.Context(), puts, k, metadata.Quorum)
			if err == nil && row.Written.Before(answered) || err != nil && (core.CodeOf(err) != core.CodeNotFound || !answered.IsZero()) {
				t.Errorf("writer %d: read what was written at %s (%v), answered was %s", client, row.Written, err, answered)
			}
		}
	})
}

// putsInPart writes many rows at once: whatever fails, a reader at Quorum sees those that the error does not name.
func putsInPart(t *testing.T, s metadata.Store, _ uint64) {
	const rows = 12
	answered := [rows]time.Time{}
	for tick := 1; tick <= 20; tick++ {
		var all []metadata.Row
		for i := range rows {
			k := metadata.Key{Partition: fmt.Sprint("part", i%4), Row: fmt.Sprint(i)}
			all = append(all, metadata.Row{Key: k, Value: []byte(fmt.Sprint(tick)), Written: at(tick)})
		}
		unstored := metadata.Unstored(s.PutAll(t.Context(), puts, all, metadata.Quorum), rows)
		for i, r := range all {
			if !slices.Contains(unstored, i) {
				answered[i] = r.Written
			}
			row, err := patient{s}.Get(t.Context(), puts, r.Key, metadata.Quorum)
			if err == nil && row.Written.Before(answered[i]) || err != nil && (core.CodeOf(err) != core.CodeNotFound || !answered[i].IsZero()) {
				t.Errorf("row %d: read what was written at %s (%v), answered was %s", i, row.Written, err, answered[i])
			}
		}
	}
}
