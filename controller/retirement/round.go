package retirement

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/controller/retirement/progress"
	"github.com/columbamq/columba/controller/retirement/retention"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

const (
	// AtOnce is how many extents of a queue are changed, or removed, before the round looks whether its time is over. So
	// each queue that a round comes to gets on.
	AtOnce = 64
	// queuesSideBySide bounds the queues that a round looks at side by side.
	queuesSideBySide = 4
	// changesAtOnce and removalsAtOnce bound the extents that are marked or retired side by side, and those that are
	// removed: the metadata and the stores have other work.
	changesAtOnce  = 16
	removalsAtOnce = 16
)

// turn is one round. It begins nothing more once it has lasted for half of the time between two rounds.
type turn struct {
	*Runner
	began             time.Time
	clocks            chan *bool // capacity 1: whether they are trusted; nil: not asked yet
	changes, removals chan struct{}
}

// trusted reports whether the clocks are: they are asked once a round, when it matters. Others wait meanwhile, by a
// channel: a mutex would be held over calls to hosts.
func (t *turn) trusted(ctx context.Context) bool {
	is := <-t.clocks
	if is == nil {
		is = new(t.trustClock(ctx))
	}
	t.clocks <- is
	return *is
}

func (t *turn) over() bool { return time.Since(t.began) >= t.cfg.Every/2 }

// round takes every queue's extents a step on, as many as there is time for. A queue or extent that cannot be read
// stays as it is.
func (r *Runner) round(ctx context.Context) {
	r.leaveGone()
	t := &turn{
		Runner: r, began: time.Now(), clocks: make(chan *bool, 1),
		changes: make(chan struct{}, changesAtOnce), removals: make(chan struct{}, removalsAtOnce),
	}
	t.clocks <- nil
	var queues errgroup.Group
	queues.SetLimit(queuesSideBySide)
	for q := range r.queues(ctx, r.cfg.Extents.Queues()) { // in another order each time
		queues.Go(func() error {
			if err := t.queue(ctx, q); err != nil && ctx.Err() == nil {
				r.unread(ctx, err, "the extents of a queue stay for now", "queue", q.queue)
			}
			return nil
		})
		if t.over() {
			break
		}
	}
	_ = queues.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	overdue := 0
	for _, n := range r.mu.overdue {
		overdue += n
	}
	r.cfg.Metrics.Overdue.Set(float64(overdue))
}

// leaveGone forgets what is known of extents and queues that are not there any more, or another controller's.
func (r *Runner) leaveGone() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.mu.seen {
		if _, live := r.cfg.Extents.Get(id); !live {
			delete(r.mu.seen, id)
		}
	}
	for queue := range r.mu.names {
		if !r.cfg.Extents.Has(queue) {
			delete(r.mu.names, queue)
		}
	}
	for queue := range r.mu.settings {
		if !r.cfg.Extents.Has(queue) || !r.cfg.Responsible(queue.ID) {
			delete(r.mu.settings, queue)
		}
	}
	for queue := range r.mu.overdue {
		if !r.cfg.Extents.Has(queue) || !r.cfg.Responsible(queue.ID) {
			delete(r.mu.overdue, queue)
		}
	}
}

// queue takes the extents of one queue a step on, and counts those that are due and stay.
func (t *turn) queue(ctx context.Context, q settings) error {
	left := 0
	if q.deleted {
		t.isDeleted(q.queue)
	} else {
		due, marked, drained := t.candidates(q, t.cfg.Now())
		var stay int
		var removing sync.WaitGroup
		removing.Go(func() { stay = t.removeAll(ctx, drained) })
		n, err := t.retireDue(ctx, q.queue, due, marked)
		removing.Wait()
		if err != nil {
			return err
		}
		left = n + stay
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.overdue[q.queue] = left; left == 0 {
		delete(t.mu.overdue, q.queue)
	}
	return nil
}

// retireDue retires what is marked and still due, and marks what is due. It answers how many extents are due and stay
// as they are. The row of the queue has said which of them may be due; it is read again before they go.
func (t *turn) retireDue(ctx context.Context, queue core.QueueID, due, marked []catalog.Extent) (left int, err error) {
	if len(due)+len(marked) == 0 {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	now := t.cfg.Now()
	q, _, err := metadata.Read[metadata.QueueRecord](ctx, t.cfg.Meta, metadata.Queues, metadata.QueueKey(queue), metadata.Serial)
	if err != nil || q.Spec.Status == core.StatusDeleted {
		return 0, err
	}
	policy := policyOf(q)
	marks := make([]metadata.SealRecord, len(marked)) // before the groups: what is read of them must be younger than the mark
	read, err := t.inChunks(ctx, len(marked), t.changes, func(i int) (err error) {
		marks[i], err = t.readMark(ctx, marked[i])
		return err
	})
	if err != nil {
		return 0, err
	}
	readers := readers{Runner: t.Runner, of: make(map[core.QueueID]progress.Progress)}
	if _, err := readers.groups(ctx, queue); err != nil {
		return 0, err
	}
	verdict := func(home core.Home, ended time.Time, id core.ExtentID) (retention.Verdict, progress.Progress, error) {
		p, err := readers.read(ctx, queue, home)
		return policy.JudgeSealed(retention.Sealed{Home: home, Ended: ended}, p.Consumed(id), now), p, err
	}
	decisions := make([]func() error, 0, read)
	for _, m := range marks[:read] {
		if m.State != core.ExtentRetiring {
			continue
		}
		v, p, err := verdict(m.Home, m.KeptFrom(), m.Extent.ID)
		if err != nil {
			return 0, err
		}
		decisions = append(decisions, func() error { return t.decide(ctx, m, v, p, v != retention.Keep && t.trusted(ctx)) })
	}
	decided, err := t.inChunks(ctx, len(decisions), t.changes, func(i int) error { return decisions[i]() })
	if err != nil {
		return 0, err
	}
	goes := due[:0]
	for _, e := range due {
		v, _, err := verdict(e.Home, e.Kept, e.ID)
		if err != nil {
			return 0, err
		}
		if v != retention.Keep {
			goes = append(goes, e)
		}
	}
	left = len(marked) - read + len(decisions) - decided + len(goes)
	if len(goes) == 0 || !t.trusted(ctx) {
		return left, nil
	}
	n, err := t.inChunks(ctx, len(goes), t.changes, func(i int) error { return t.mark(ctx, goes[i]) })
	return left - n, err
}

// readMark reads the row of an extent that is marked.
func (r *Runner) readMark(ctx context.Context, e catalog.Extent) (metadata.SealRecord, error) {
	row, _, err := metadata.Read[metadata.SealRecord](ctx, r.cfg.Meta, metadata.Seals, metadata.SealKey(e.ID), metadata.Serial)
	if err == nil {
		r.cfg.Extents.Took(row)
	}
	return row, err
}

// removeAll removes drained extents, and answers how many stay.
func (t *turn) removeAll(ctx context.Context, drained []catalog.Extent) int {
	var gone atomic.Int64
	_, _ = t.inChunks(ctx, len(drained), t.removals, func(i int) error {
		if t.lookAndRemove(ctx, drained[i]) {
			gone.Add(1)
		}
		return nil
	})
	return len(drained) - int(gone.Load())
}

// lookAndRemove removes a drained extent, and waits for that as long as a step may take.
func (t *turn) lookAndRemove(ctx context.Context, e catalog.Extent) (gone bool) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	ended := make(chan error, 1)
	if !t.owner.Look(e.ID, func(ctx context.Context) { ended <- t.removeDrained(ctx, e) }) {
		return false
	}
	select {
	case err := <-ended:
		return err == nil
	case <-ctx.Done():
		return false
	}
}

// inChunks calls f for the first so many of n, side by side as slots allow, and answers for how many. The first AtOnce
// have their turn in any case, more while the round has time. After an error the rest of a chunk has its turn, and no
// other chunk.
func (t *turn) inChunks(ctx context.Context, n int, slots chan struct{}, f func(i int) error) (done int, err error) {
	for done < n && (done == 0 || !t.over()) {
		end := min(n, done+AtOnce)
		var g errgroup.Group
		for i := done; i < end && ctx.Err() == nil; i++ {
			slots <- struct{}{}
			g.Go(func() error {
				defer func() { <-slots }()
				return f(i)
			})
		}
		if err := g.Wait(); err != nil {
			return done, err
		}
		if ctx.Err() != nil {
			return done, ctx.Err()
		}
		done = end
	}
	return done, nil
}

// readers tells how far those are that read extents. It reads the groups of each queue once.
type readers struct {
	*Runner
	of map[core.QueueID]progress.Progress
}

// read is how far those are that read an extent of a queue by its home.
func (r readers) read(ctx context.Context, queue core.QueueID, home core.Home) (progress.Progress, error) {
	if home.Kind != core.HomeMerged {
		return r.groups(ctx, queue)
	}
	p, err := r.groups(ctx, home.Queue)
	return p.Only(home.Group), err
}

func (r readers) groups(ctx context.Context, queue core.QueueID) (progress.Progress, error) {
	if p, read := r.of[queue]; read {
		return p, nil
	}
	r.mu.Lock()
	before := r.mu.names[queue]
	r.mu.Unlock()
	p, names, err := progress.Read(ctx, r.cfg.Meta, queue, before)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.names[queue] = names
	r.of[queue] = p
	return p, nil
}
