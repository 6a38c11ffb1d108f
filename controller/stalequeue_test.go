package controller

import (
	"context"
	"testing"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// queuesLate is metadata of which a read at One finds no queue: the copy that answers does not have it yet.
type queuesLate struct{ metadata.Store }

func (s queuesLate) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	if t == metadata.Queues && c == metadata.One {
		return metadata.Row{}, metadata.NoRow(t, k)
	}
	return s.Store.Get(ctx, t, k, c)
}

// TestEnsure_QueueThatOneCopyLacks: a queue that was made a moment ago takes messages.
func TestEnsure_QueueThatOneCopyLacks(t *testing.T) {
	for name, made := range map[string]func(r *harness) core.QueueID{
		"AP": func(r *harness) core.QueueID { return r.queue(1, 1) },
		"CP": (*harness).chainedQueue,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, harnessOptions{stores: 2}, func(r *harness) {
				r.ctl.end()
				r.use(queuesLate{r.meta})
				r.ctl = r.startController(nil)
				if _, err := r.ctl.ensureExtent(r.t.Context(), r.wish(made(r))); err != nil {
					t.Errorf("%v (%s)", err, core.CodeOf(err))
				}
				if _, err := r.ctl.ensureExtent(r.t.Context(), r.wish(core.QueueID{ID: core.ID{1}})); core.CodeOf(err) != core.CodeNotFound {
					t.Errorf("a queue that is on no copy: %v", err)
				}
			})
		})
	}
}

// TestStage_QueueThatOneCopyLacks: an operation stages messages of a queue that was made a moment ago.
func TestStage_QueueThatOneCopyLacks(t *testing.T) {
	bubble(t, harnessOptions{stores: 1}, func(r *harness) {
		r.ctl.end()
		r.use(queuesLate{r.meta})
		r.ctl = r.startController(nil)
		d, operation := deadLetters{r.ctl.Host}, core.ID{1}
		e, err := d.Stage(r.t.Context(), r.queue(1, 1), operation)
		r.ok(err)
		r.ok(d.Register(r.t.Context(), e, operation))
	})
}
