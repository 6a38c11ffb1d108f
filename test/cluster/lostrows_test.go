package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/underrace"
	"github.com/columbamq/columba/metadata"
)

// foundWithin is the time within which an extent without a create row and without hints is delivered again: metadata
// must lack it for five minutes, a store tells of it within 30 s, the controller of the queue hears of it within 30 s
// more, and looks at an idle queue once a minute.
const foundWithin = 7*time.Minute + 30*time.Second

// lose removes the create row and the hints of an extent, as if nobody had ever written them.
func (w *world) lose(e core.Extent) {
	w.t.Helper()
	at := time.Now().Add(time.Second)
	w.ok(w.Meta.Remove(w.t.Context(), metadata.Extents, metadata.ExtentKey(e.Queue, e.ID), at, metadata.Serial))
	for _, h := range []metadata.Hint{metadata.HintOpen, metadata.HintLive} {
		w.ok(w.Meta.Remove(w.t.Context(), metadata.Work, metadata.HintKey(h, e.ID), at, metadata.Serial))
	}
}

// created are the tuples of the queue's extents by their create rows, the oldest first.
func (w *world) created() (out []core.Extent) {
	w.t.Helper()
	q, err := w.Client.Admin().GetQueue(w.t.Context(), queue)
	w.ok(err)
	for r, err := range metadata.All[metadata.ExtentRecord](w.t.Context(), w.Meta, metadata.Extents, q.ID.String(), metadata.Serial) {
		w.ok(err)
		out = append(out, r.Value.Extent)
	}
	slices.SortFunc(out, func(a, b core.Extent) int { return slices.Compare(a.ID.ID[:], b.ID.ID[:]) })
	return out
}

// hasEnd reports whether the seal row of an extent has its end.
func (w *world) hasEnd(e core.Extent) bool {
	row, _, err := metadata.Read[metadata.SealRecord](w.t.Context(), w.Meta, metadata.Seals, metadata.SealKey(e.ID), metadata.Serial)
	return err == nil && row.State.HasEnd()
}

// TestLostRows: the create row and the hints of an extent are deleted by hand, and all controllers start anew. All is
// delivered: stores show the extent, or the next place of its chain names it, and messages of a CP queue come in order.
func TestLostRows(t *testing.T) {
	type lost struct {
		name        string
		consistency core.Consistency
		open        bool // the extent is the last one, and open
		writerDies  bool
		many        int // extents, one after another
	}
	for _, x := range []lost{
		{"open, ap", core.AP, true, false, 1}, {"open and its writer dies, ap", core.AP, true, true, 1}, {"sealed, ap", core.AP, false, false, 1},
		{"head, cp", core.CP, true, false, 1}, {"head and its writer dies, cp", core.CP, true, true, 1},
		{"in the middle of a chain, cp", core.CP, false, false, 1}, {"two in the middle of a chain, cp", core.CP, false, false, 2},
	} {
		for _, controllers := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s, %d controllers", x.name, controllers), func(t *testing.T) {
				underrace.One(t, x.many > 1 && controllers > 1)
				o := Options{Stores: 3, Controllers: controllers, Input: rollAt(1_000)}
				bubbleOf(t, o, core.QueueSpec{Path: queue, Consistency: x.consistency}, func(w *world) {
					w.group("g", nil)
					sleep(10 * time.Second)
					p := w.publisher()
					var want []string
					publish := func(n int) {
						for range n {
							body := fmt.Sprintf("%06d", len(want))
							_, err := p.Publish(w.t.Context(), client.Message{Body: []byte(body)})
							w.ok(err)
							want = append(want, body)
							sleep(50 * time.Millisecond)
						}
					}
					publish(140)
					all := w.created()
					i := slices.IndexFunc(all, func(e core.Extent) bool { return !w.hasEnd(e) })
					if !x.open {
						i = 1
					}
					if len(all) < 5 || i < 0 || w.hasEnd(all[i]) == x.open {
						w.t.Fatalf("%d extents, the one that loses its rows is number %d", len(all), i)
					}
					var controllers []core.HostID
					for n := range w.o.Controllers {
						controllers = append(controllers, ControllerOf(n))
					}
					w.Crash(controllers...)
					w.Crash(Output) // else it keeps the share
					for _, e := range all[i : i+x.many] {
						w.lose(e)
					}
					if x.writerDies {
						w.Crash(Input)
					}
					w.Up(controllers...)
					w.Up(Output)
					if x.writerDies {
						w.Up(Input)
					}
					began := time.Now()
					con := w.consumer("g")
					got, last := make(map[string]int), ""
					for len(got) < len(want) {
						d := w.take(con, 10*time.Second)
						if d == nil && time.Since(began) > foundWithin {
							w.t.Fatalf("%d of %d messages came within %s", len(got), len(want), foundWithin)
						}
						if d == nil {
							publish(1) // so that the extent does not end because it is idle
							continue
						}
						if body := string(d.Body); x.consistency == core.CP && body < last {
							w.t.Fatalf("%s came after %s", body, last)
						} else {
							last = max(last, body)
						}
						got[string(d.Body)]++
						w.ok(d.Ack())
					}
					w.t.Logf("all came after %s", time.Since(began))
					w.all(got, want, true)
					w.ok(p.Close(w.t.Context()))
					w.close(con)
				})
			})
		}
	}
}
