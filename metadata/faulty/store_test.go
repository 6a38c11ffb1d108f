package faulty_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/faulty"
	"github.com/columbamq/columba/metadata/memory"
	"github.com/columbamq/columba/metadata/metadatatest"
)

var (
	swaps = metadata.Table{Name: "cas", Rule: metadata.RuleCAS}
	puts  = metadata.Table{Name: "put", Rule: metadata.RulePut}
)

func key(row string) metadata.Key { return metadata.Key{Partition: "p", Row: row} }

// Without faults it is the store behind it.
func TestStore(t *testing.T) {
	metadatatest.Run(t, func(*testing.T) metadata.Store { return faulty.New(memory.New(), faulty.Faults{}) })
}

func TestStore_Before(t *testing.T) {
	behind := memory.New()
	s := faulty.New(behind, faulty.Faults{Before: 1})
	if err := s.Insert(t.Context(), swaps, key("a"), nil); core.CodeOf(err) != core.CodeUnavailable {
		t.Errorf("insert: %v", err)
	}
	if _, err := s.Get(t.Context(), swaps, key("a"), metadata.Serial); core.CodeOf(err) != core.CodeUnavailable {
		t.Errorf("get: %v", err)
	}
	if _, err := behind.Get(t.Context(), swaps, key("a"), metadata.Serial); core.CodeOf(err) != core.CodeNotFound {
		t.Errorf("a refused insert was done: %v", err)
	}
}

// Of the writes with a lost answer a half is done at once, a quarter after a while, a quarter never; the same by the
// same seed.
func TestStore_Lost(t *testing.T) {
	const n = 400
	var first [2]int
	for run := range 2 {
		synctest.Test(t, func(t *testing.T) {
			behind := memory.New()
			s := faulty.New(behind, faulty.Faults{Seed: 7, Lost: 1, Delay: time.Second})
			for i := range n {
				if err := s.Insert(t.Context(), swaps, key(fmt.Sprint(i)), nil); core.CodeOf(err) != core.CodeUnknown {
					t.Errorf("insert: %v", err)
				}
			}
			var got [2]int
			for i, settle := range []func(){func() {}, func() { time.Sleep(time.Minute) }} {
				settle()
				rows, _, err := behind.List(t.Context(), swaps, "p", "", 2*n, metadata.Serial)
				if err != nil {
					t.Error(err)
				}
				got[i] = len(rows)
			}
			if got[1] < n*13/20 || got[1] > n*17/20 || got[0] > got[1] {
				t.Errorf("%d done at once, %d in the end, of %d", got[0], got[1], n)
			}
			if run == 0 {
				first = got
			} else if got != first {
				t.Errorf("seed 7 gives %v, then %v", first, got)
			}
			s.Close()
		})
	}
}

// Of the compare-and-sets that time out a quarter is done at once, a quarter later, and a half never. Reads and other
// writes are answered.
func TestStore_CAS(t *testing.T) {
	const n = 400
	synctest.Test(t, func(t *testing.T) {
		behind := memory.New()
		s := faulty.New(behind, faulty.Faults{Seed: 7, CAS: 1, Timeout: time.Second})
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				if err := s.Insert(t.Context(), swaps, key(fmt.Sprint(i)), nil); core.CodeOf(err) != core.CodeUnknown {
					t.Errorf("insert: %v", err)
				}
			})
		}
		synctest.Wait()
		var got [2]int
		for i, settle := range []func(){func() {}, func() { time.Sleep(time.Minute) }} {
			settle()
			rows, _, err := s.List(t.Context(), swaps, "p", "", 2*n, metadata.Serial)
			if err != nil {
				t.Error(err)
			}
			got[i] = len(rows)
		}
		wg.Wait()
		if got[0] < n*15/100 || got[0] > n*35/100 || got[1] < n*4/10 || got[1] > n*6/10 {
			t.Errorf("%d done at once, %d in the end, of %d", got[0], got[1], n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		began := time.Now()
		if err := s.Insert(ctx, swaps, key("short"), nil); core.CodeOf(err) != core.CodeUnknown || time.Since(began) != time.Second/2 {
			t.Errorf("insert by a caller with half a second: %v after %s", err, time.Since(began))
		}
		if err := s.Put(t.Context(), puts, key("a"), nil, time.Now(), 0, metadata.One); err != nil {
			t.Errorf("put: %v", err)
		}
		if got, of := s.TimedOut(); got != n+1 || of != n+1 {
			t.Errorf("%d timed out, want %d", got, n+1)
		}
		s.Close()
	})
}

func TestStore_Stale(t *testing.T) {
	s := faulty.New(memory.New(), faulty.Faults{Stale: 1})
	ctx := t.Context()
	for i := 1; i <= 3; i++ {
		if err := s.Put(ctx, puts, key("a"), fmt.Append(nil, i), time.Unix(int64(i), 0), 0, metadata.One); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			if _, err := s.Get(ctx, puts, key("a"), metadata.One); core.CodeOf(err) != core.CodeNotFound {
				t.Errorf("get at One after the first put: %v, want not found", err)
			}
		}
	}
	for c, want := range map[metadata.Consistency]string{metadata.One: "2", metadata.Quorum: "3", metadata.Serial: "3"} {
		row, err := s.Get(ctx, puts, key("a"), c)
		if err != nil || string(row.Value) != want {
			t.Errorf("get at %d: %q %v, want %s", c, row.Value, err, want)
		}
		rows, _, err := s.List(ctx, puts, "p", "", 10, c)
		if err != nil || len(rows) != 1 || string(rows[0].Value) != want {
			t.Errorf("list at %d: %d rows %v, want one with %s", c, len(rows), err, want)
		}
	}
}
