package controller

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// lateRows is metadata that holds up writes of create rows: before them, or their answers. One may get an error in
// place of its answer.
type lateRows struct {
	metadata.Store
	before, after chan struct{}
	lost          atomic.Bool
}

func (s *lateRows) Put(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, at time.Time, ttl time.Duration, c metadata.Consistency) error {
	if t != metadata.Extents {
		return s.Store.Put(ctx, t, k, value, at, ttl, c)
	}
	<-s.before
	err := s.Store.Put(ctx, t, k, value, at, ttl, c)
	<-s.after
	if err == nil && s.lost.Swap(false) {
		err = core.Errorf(core.CodeInternal, "injected: the answer is lost")
	}
	return err
}

// TestLoading_MeetsWhatIsMade: the reading comes by an extent that is made meanwhile. It is one extent, which its host
// gets again. When the answer to the write of its row is lost, it comes to nothing.
func TestLoading_MeetsWhatIsMade(t *testing.T) {
	for _, name := range []string{"before its row is written", "before the answer to its row", "the answer to its row is lost"} {
		t.Run(name, func(t *testing.T) {
			var queue core.QueueID
			reading(t, harnessOptions{stores: 2}, func(r *harness) {
				queue = r.queue(2, 1)
				late := &lateRows{Store: r.meta, before: make(chan struct{}), after: make(chan struct{})}
				if close(late.before); strings.HasPrefix(name, "before its row") {
					late.before = late.after
				}
				late.lost.Store(strings.HasSuffix(name, "lost"))
				r.use(late)
			}, func(r *harness, goOn func()) {
				late := r.meta.(*heldHints).Store.(*lateRows)
				type result struct {
					core.Extent
					error
				}
				made := make(chan result, 1)
				go func() {
					e, err := r.ctl.ensureExtent(r.t.Context(), r.wish(queue))
					made <- result{e, err}
				}()
				r.sleep(100 * time.Millisecond)
				goOn()
				want := 1
				if strings.HasPrefix(name, "before its row") {
					want = 0
				}
				if met := len(r.ctl.extents.Of(queue)); met != want {
					t.Errorf("the reading met %d extents, want %d", met, want)
				}
				close(late.after)
				first := <-made
				again, err := r.ctl.ensureExtent(r.t.Context(), r.wish(queue))
				r.ok(err)
				if strings.HasSuffix(name, "lost") {
					if first.error == nil {
						t.Fatal("the answer was not lost")
					}
					r.store(again.Replicas[0]).write(again)
					r.store(again.Replicas[1]).write(again)
					r.eventually("the extent without an answer is gone", 20*time.Minute, func() bool {
						return len(r.ctl.extents.OpenOf(queue)) == 1
					})
				} else if first.error != nil || again.ID != first.ID {
					t.Errorf("made %s, %v, and asked again %s", first.ID, first.error, again.ID)
				}
				if open := r.ctl.extents.OpenOf(queue); len(open) != 1 || open[0].ID != again.ID || !open[0].Made {
					t.Errorf("open are %+v, want %s only", open, again.ID)
				}
			})
		})
	}
}

// TestLoading_TwoControllers: an input host asks one controller and then the other, while both read the extents. It
// gets an extent of each, and the same one when it asks again. Both controllers know both extents in the end, and the
// one that is never opened is sealed.
func TestLoading_TwoControllers(t *testing.T) {
	reading(t, harnessOptions{stores: 2, outputs: 1}, func(*harness) {}, func(r *harness, goOn func()) {
		r.config = beside
		queue := r.queue(2, 1)
		r.group(queue, "g")
		r.answer(r.ctl)
		other := r.beside("ctl2")
		defer other.end()
		ask := func(c *running) core.Extent {
			e, err := c.ensureExtent(r.t.Context(), r.wish(queue))
			r.ok(err)
			return e
		}
		first, second := ask(r.ctl), ask(other)
		if first.ID == second.ID || ask(r.ctl).ID != first.ID || ask(other).ID != second.ID {
			t.Error("each controller has its own extent, and answers the same one each time")
		}
		for _, s := range r.stores {
			s.write(second, "1")
		}
		goOn()
		both := [2]*running{r.ctl, other}
		r.eventually("one controller is responsible for the queue", 30*time.Second, func() bool { return of(both, queue) >= 0 })
		if ask(r.ctl).ID != first.ID || ask(other).ID != second.ID {
			t.Error("asked again when all is known: another extent")
		}
		known := func(e core.Extent) bool {
			_, one := r.ctl.extents.Get(e.ID)
			_, two := other.extents.Get(e.ID)
			return one && two
		}
		r.eventually("both know both", 2*reloadOften, func() bool { return known(first) && known(second) })
		r.eventually("the extents have an owner", time.Minute, func() bool { return r.outputs[0].shares()[second.ID] != nil })
		r.eventually("the extent that was never opened is sealed", 10*time.Minute, func() bool { return r.row(first).State.HasEnd() })
		if r.row(second).State != "" {
			t.Errorf("the extent that is in use is %s", r.row(second).State)
		}
	})
}
