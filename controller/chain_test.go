package controller

import (
	"net/http"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// chainedQueue makes a CP queue.
func (r *harness) chainedQueue() core.QueueID {
	id := core.QueueID{ID: core.NewID(time.Now())}
	spec := core.QueueSpec{Path: "/t/" + id.String(), Consistency: core.CP}.WithDefaults(2, 2)
	r.ok(metadata.Create(r.t.Context(), r.meta, metadata.Queues, metadata.QueueKey(id), metadata.QueueRecord{ID: id, Spec: spec}))
	return id
}

// otherInput is a second input host, and its wish.
func (r *harness) otherInput(queue core.QueueID) (membership.Host, wish) {
	h := membership.Host{ID: "in2", Roles: []string{"inputhost"}, Address: "in2:1", Run: newRun()}
	r.serve("in2:1", http.NotFoundHandler())
	r.join(h)
	r.sleep(time.Second)
	return h, wish{queue: queue, input: h.ID, run: h.Run, kind: core.KindLog}
}

func (r *harness) head(queue core.QueueID) core.Extent {
	r.t.Helper()
	h, err := metadata.ReadHead(r.t.Context(), r.meta, queue, metadata.Serial)
	r.ok(err)
	return h.Extent
}

func TestChain_OneOpenExtentInOneHand(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		queue := r.chainedQueue()
		_, other := r.otherInput(queue)
		e, err := r.ctl.ensureExtent(r.t.Context(), r.wish(queue))
		r.ok(err)
		if e.Chain != 1 || !r.head(queue).Equal(e) {
			t.Fatalf("first extent %+v, head %+v", e, r.head(queue))
		}
		again, err := r.ctl.ensureExtent(r.t.Context(), r.wish(queue)) // the first answer may have been lost
		if err != nil || again.ID != e.ID {
			t.Errorf("asked again: %s, %v; want the same extent", again.ID, err)
		}
		if _, err := r.ctl.ensureExtent(r.t.Context(), other); core.CodeOf(err) != core.CodeMoved {
			t.Errorf("another host got %v, want to be told whose it is", err)
		}
		w := r.wish(queue)
		w.have = []core.ExtentID{e.ID}
		if _, err := r.ctl.ensureExtent(r.t.Context(), w); core.CodeOf(err) != core.CodeExists {
			t.Errorf("the host that uses the head got %v, want to be told that it has it", err)
		}
		if n := len(r.ctl.extents.OpenOf(queue)); n != 1 {
			t.Errorf("%d open extents", n)
		}
	})
}

func TestChain_NextAfterTheEndIsFixed(t *testing.T) {
	for name, last := range map[string]func(r *harness, e core.Extent, h membership.Host) bool{
		"sealed": func(r *harness, e core.Extent, _ membership.Host) bool {
			_, err := r.seal(e, 0)
			r.ok(err)
			return true
		},
		"its host is gone": func(r *harness, _ core.Extent, _ membership.Host) bool {
			r.kill("in")
			r.leave("in")
			r.sleep(3 * time.Second)
			return true
		},
		"its end cannot be fixed": func(r *harness, _ core.Extent, _ membership.Host) bool {
			r.kill("in")
			r.leave("in")
			for _, s := range r.stores {
				r.kill(s.id)
			}
			r.sleep(3 * time.Second)
			return false
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, harnessOptions{stores: 3}, func(r *harness) {
				queue := r.chainedQueue()
				h, other := r.otherInput(queue)
				first := r.extent(queue, 5)
				moves := last(r, first, h)
				e, err := r.ctl.ensureExtent(r.t.Context(), other)
				if !moves {
					if err == nil || r.head(queue).ID != first.ID {
						t.Errorf("got %v, %v while the old head has no end", e, err)
					}
					return
				}
				r.ok(err)
				if row := r.row(first); e.Chain != 2 || !r.head(queue).Equal(e) || !row.State.HasEnd() || row.L != 5 {
					t.Errorf("extent %+v, head %+v, row %+v", e, r.head(queue), row)
				}
				if _, err := r.ctl.ensureExtent(r.t.Context(), wish{queue: queue, input: "in", run: newRun(), kind: core.KindLog}); core.CodeOf(err) != core.CodeMoved {
					t.Errorf("the old host got %v", err)
				}
			})
		})
	}
}

// TestChain_RowsAreRepairedFromTheHead: a controller died between the move of the head and the rows.
func TestChain_RowsAreRepairedFromTheHead(t *testing.T) {
	bubble(t, harnessOptions{stores: 3}, func(r *harness) {
		queue := r.chainedQueue()
		made, err := r.ctl.newExtent(r.t.Context(), r.wish(queue), 1)
		r.ok(err)
		now := time.Now()
		head := metadata.HeadRecord{Queue: queue, Extent: made.Extent, Changed: now, Attempt: core.NewID(now)}
		r.ok(metadata.MoveHead(r.t.Context(), r.meta, metadata.HeadRecord{Queue: queue}, head))
		e, err := r.ctl.ensureExtent(r.t.Context(), r.wish(queue))
		r.ok(err)
		if e.ID != made.ID || hints(r, metadata.HintOpen) != 1 || rows(r, metadata.Extents, queue.String()) != 1 {
			t.Errorf("got %s, want %s with its rows", e.ID, made.ID)
		}
		if known, _ := r.ctl.extents.Get(e.ID); known.Wanted != made.Wanted {
			t.Errorf("it wants %d copies, made for %d", known.Wanted, made.Wanted)
		}
		r.ok(metadata.MoveHead(r.t.Context(), r.meta, head, metadata.HeadRecord{
			Queue: queue, Changed: now, Attempt: core.NewID(now), Extent: core.Extent{ID: core.ExtentID{ID: core.NewID(now)}, Chain: 2},
		}))
	})
}

func TestChain_OneOwnerMovesAsAWhole(t *testing.T) {
	bubble(t, harnessOptions{stores: 3, outputs: 3}, func(r *harness) {
		queue := r.chainedQueue()
		group := r.group(queue, "g")
		var all []core.Extent
		for range 4 {
			e := r.extent(queue, 5)
			all = append(all, e)
			_, err := r.seal(e, 5)
			r.ok(err)
		}
		owners := func() map[core.HostID]int {
			out := make(map[core.HostID]int)
			for _, e := range all {
				out[r.ownerOf(group, e.ID)]++
			}
			return out
		}
		r.sleep(3 * time.Second)
		was := owners()
		if len(was) != 1 || was[""] > 0 {
			t.Fatalf("owners %v, want one", was)
		}
		for id := range was {
			r.kill(id)
			r.leave(id)
		}
		r.sleep(5 * time.Second)
		now := owners()
		for id := range was {
			if len(now) != 1 || now[id] > 0 {
				t.Errorf("owners %v after %v, want another one", now, was)
			}
		}
	})
}
