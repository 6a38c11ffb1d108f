package extentlogtest

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/google/go-cmp/cmp"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
	"github.com/columbamq/columba/storehost/extentlog"
	"github.com/columbamq/columba/wire"
)

// due asks on until all that a query asks for has come.
func (f *fixture) due(id core.ExtentID, q extentlog.DueQuery) (keys []extentlog.DueKey, records [][]byte, next int64) {
	f.t.Helper()
	for round := 0; ; round++ {
		run, err := f.Due(id, q, func(r extentlog.DueRecord) {
			keys, records = append(keys, r.DueKey), append(records, bytes.Clone(r.Record))
		})
		must(f.t, err)
		if q.After = run.Passed; !run.More {
			if want := extentlog.DueThrough(q.Until); run.Passed != want {
				f.t.Fatalf("all that is due until %d was looked at, but passed is %+v", q.Until, run.Passed)
			}
			return keys, records, run.Next
		}
		if round > 10_000 {
			f.t.Fatalf("no end after %+v", run)
		}
	}
}

// timers appends n batches of timers with due times that are drawn, and answers the keys in order.
func (f *fixture) timers(id core.ExtentID, w *Writer, n int, random *rand.Rand) (keys []extentlog.DueKey) {
	f.t.Helper()
	for range n {
		var due []int64
		for range 1 + random.IntN(20) {
			due = append(due, random.Int64N(1000))
			keys = append(keys, extentlog.DueKey{At: due[len(due)-1], Seq: w.Last + core.Seq(len(due))})
		}
		_, err := Append(f, id, w.Timers(50, due...), 0)
		must(f.t, err)
	}
	return sorted(keys)
}

func sorted(keys []extentlog.DueKey) []extentlog.DueKey {
	slices.SortFunc(keys, func(a, b extentlog.DueKey) int {
		if a.Beyond(b) {
			return 1
		}
		return -1
	})
	return keys
}

func dueInOrder(f *fixture) {
	e, w, random := TimerExtent(), new(Writer), rand.New(rand.NewPCG(1, 2))
	must(f.t, f.Open(e))
	want := f.timers(e.ID, w, 40, random)
	for range 2 {
		for _, most := range []int{1, 700, noLimit} {
			keys, records, next := f.due(e.ID, extentlog.DueQuery{Until: 999, UpTo: w.Last, MaxBytes: most})
			if diff := cmp.Diff(want, keys); diff != "" || next != extentlog.NeverDue {
				f.t.Fatalf("next is %d; (-want +got):\n%s", next, diff)
			}
			for i, b := range records {
				if wire.DeliverAt(b) != keys[i].At {
					f.t.Fatalf("%+v has a record that is due at %d", keys[i], wire.DeliverAt(b))
				}
			}
		}
		f.reopen()
	}
	log, _ := f.opened(1)
	_, err := f.Due(log.ID, extentlog.DueQuery{}, nil)
	wantCode(f.t, err, core.CodeBadArgument)
	must(f.t, Remove(f, e, 1))
	_, err = f.Due(e.ID, extentlog.DueQuery{Until: 999, UpTo: w.Last}, nil)
	wantCode(f.t, err, core.CodeNotFound)
}

func dueBounds(f *fixture) {
	e, w := TimerExtent(), new(Writer)
	must(f.t, f.Open(e))
	for _, due := range [][]int64{{300, 100}, {200, 100}, {0, 500}} {
		_, err := Append(f, e.ID, w.Timers(20, due...), 0)
		must(f.t, err)
	}
	var known acklevel.Window
	known.Ack(3)
	known.Ack(5)
	for _, test := range []struct {
		q    extentlog.DueQuery
		want []core.Seq
		next int64
	}{
		{extentlog.DueQuery{Until: 99, UpTo: 6}, []core.Seq{5}, 100},
		{extentlog.DueQuery{Until: 100, UpTo: 6}, []core.Seq{5, 2, 4}, 200},
		{extentlog.DueQuery{Until: 9999, UpTo: 3}, []core.Seq{2, 3, 1}, extentlog.NeverDue},
		{extentlog.DueQuery{Until: 499, UpTo: 6, Known: &known}, []core.Seq{2, 4, 1}, 500},
		{extentlog.DueQuery{After: extentlog.DueKey{At: 100, Seq: 2}, Until: 250, UpTo: 6}, []core.Seq{4, 3}, 300},
		{extentlog.DueQuery{After: extentlog.DueThrough(100), Until: 100, UpTo: 6}, nil, 200},
	} {
		test.q.MaxBytes = noLimit
		keys, _, next := f.due(e.ID, test.q)
		var got []core.Seq
		for _, k := range keys {
			got = append(got, k.Seq)
		}
		if !slices.Equal(got, test.want) || next != test.next {
			f.t.Errorf("%+v: got %v, next at %d, want %v, %d", test.q, got, next, test.want, test.next)
		}
	}
	var enqueued []int64
	_, err := f.Due(e.ID, extentlog.DueQuery{Until: 100, UpTo: 6, MaxBytes: noLimit}, func(r extentlog.DueRecord) { enqueued = append(enqueued, r.Enqueued) })
	must(f.t, err)
	if !slices.Equal(enqueued, []int64{3000, 1000, 2000}) {
		f.t.Errorf("enqueued at %v", enqueued)
	}
}

// Records that a seal cuts off are not in the index any more.
func dueAfterSeal(f *fixture) {
	e, w, random := TimerExtent(), new(Writer), rand.New(rand.NewPCG(3, 4))
	must(f.t, f.Open(e))
	want := f.timers(e.ID, w, 10, random)
	end := *w
	f.timers(e.ID, w, 10, random)
	_, err := f.Fence(e, 0)
	must(f.t, err)
	must(f.t, f.Seal(e.ID, end.Last, end.Checksum, 0))
	for range 2 {
		keys, _, next := f.due(e.ID, extentlog.DueQuery{Until: 999, UpTo: math.MaxUint64, MaxBytes: 500})
		if diff := cmp.Diff(want, keys); diff != "" || next != extentlog.NeverDue {
			f.t.Fatalf("next is %d; (-want +got):\n%s", next, diff)
		}
		f.reopen()
	}
}

// A replica that is made by copies has the same index.
func dueOfCopies(f *fixture) {
	e, w, random := TimerExtent(), new(Writer), rand.New(rand.NewPCG(5, 6))
	must(f.t, f.Open(e))
	want := f.timers(e.ID, w, 20, random)
	batches := ReadAll(f.t, f, e.ID, w.Last, noLimit)
	must(f.t, Remove(f, e, 1))
	_, err := f.Fence(e, 2)
	must(f.t, err)
	if keys, _, _ := f.due(e.ID, extentlog.DueQuery{Until: 999, UpTo: math.MaxUint64, MaxBytes: noLimit}); len(keys) > 0 {
		f.t.Fatalf("%d timers of before the removal", len(keys))
	}
	_, err = f.Copy(e.ID, batches)
	must(f.t, err)
	keys, _, _ := f.due(e.ID, extentlog.DueQuery{Until: 999, UpTo: math.MaxUint64, MaxBytes: noLimit})
	if diff := cmp.Diff(want, keys); diff != "" {
		f.t.Fatalf("(-want +got):\n%s", diff)
	}
}
