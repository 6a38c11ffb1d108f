package inputhost

import (
	"context"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/inputhost/writer"
)

// rolling is the question whether the open head of a chain may be ended now.
type rolling struct {
	asking    bool
	notBefore time.Time // the next question, after one that was answered with no
}

// rollLocked ends the open head of a chain once a controller has shown that the metadata answer. The next extent can be
// opened only when the head is sealed. So without the metadata a queue whose head is ended takes no messages. A head
// that goes on beyond its size or age does no harm.
func (q *queue) rollLocked(now time.Time, w *writer.Writer, reason string) {
	r := &q.mu.chain.rolling
	if r.asking || now.Before(r.notBefore) {
		return
	}
	r.asking = q.h.tasks.Go(func(ctx context.Context) { q.roll(ctx, w, reason) })
}

// roll asks a controller, and ends the head unless somebody has published meanwhile to one that was idle.
func (q *queue) roll(ctx context.Context, w *writer.Writer, reason string) {
	may := q.mayRoll(ctx)
	now := q.h.deps.now()
	q.mu.Lock()
	r := &q.mu.chain.rolling
	r.asking = false
	if !may {
		r.notBefore = now.Add(replacePause)
	}
	if reason == "idle" && !q.idlesLocked(now) {
		may = false
	}
	was := may && q.mu.open.drop(w)
	q.mu.Unlock()
	if was {
		w.Close(reason)
	}
}

// mayRoll asks a controller for an extent beside the head that this host has. A controller that reads the head from a
// majority of the metadata answers that this host has it already.
func (q *queue) mayRoll(ctx context.Context) bool {
	_, _, err := q.ensure(ctx)
	switch core.CodeOf(err) {
	case "", core.CodeExists, core.CodeMoved, core.CodeNotFound:
		return true
	}
	return false
}

// idlesLocked reports whether nobody has published for so long that open extents are ended.
func (q *queue) idlesLocked(now time.Time) bool {
	return now.Sub(q.mu.active) >= q.openFor(q.h.cfg.IdleAfter)
}
