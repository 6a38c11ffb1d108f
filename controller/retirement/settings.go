package retirement

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/columbamq/columba/controller/retirement/retention"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

const (
	// settingsFor is for how long the row of a queue is not read again, unless somebody tells that it has changed.
	settingsFor = 40 * time.Minute
	// queuesAtOnce bounds the rows of queues that are read by one call.
	queuesAtOnce = 100
)

// settings are those of a queue that a round goes by, as its row said when it was read.
type settings struct {
	queue   core.QueueID
	deleted bool
	policy  retention.Policy
	read    time.Time
	calm    calm // as of the last look at the extents that found the queue calm
}

// Changed has the next round read the row of a queue.
func (r *Runner) Changed(queue core.QueueID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mu.settings, queue)
	delete(r.mu.reading, queue)
}

// queues yields those of the queues that this controller is responsible for, except those whose rows cannot be read.
// The rows may be old: the caller reads a row again at Serial before it acts on it. Serial reads of all queues would
// fill the time between two rounds.
func (r *Runner) queues(ctx context.Context, of []core.QueueID) iter.Seq[settings] {
	return func(yield func(settings) bool) {
		others := func(id core.QueueID) bool { return !r.cfg.Responsible(id.ID) }
		for queues := range slices.Chunk(slices.DeleteFunc(of, others), queuesAtOnce) {
			known, unread := r.known(queues)
			for _, k := range append(known, r.readQueues(ctx, unread)...) {
				if ctx.Err() != nil || !yield(k) {
					return
				}
			}
		}
	}
}

// known divides queues into those whose rows were read not long ago, and the others.
func (r *Runner) known(queues []core.QueueID) (known []settings, unread []core.QueueID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range queues {
		if k, there := r.mu.settings[id]; there && time.Since(k.read) < settingsFor {
			known = append(known, k)
		} else {
			unread = append(unread, id)
		}
	}
	return known, unread
}

// readQueues reads the rows of queues, and remembers what they say. A deleted queue is read each time.
func (r *Runner) readQueues(ctx context.Context, queues []core.QueueID) (out []settings) {
	if len(queues) == 0 {
		return nil
	}
	r.mu.Lock()
	for _, id := range queues {
		r.mu.reading[id] = struct{}{}
	}
	r.mu.Unlock()
	now := time.Now()
	rows, err := r.queueRows(ctx, queues)
	if err != nil && ctx.Err() == nil {
		r.unread(ctx, err, "the extents of some queues stay for now: their rows cannot be read", "queues", len(queues))
	}
	for _, row := range rows {
		q, err := metadata.Decode[metadata.QueueRecord](metadata.Queues, row)
		if err != nil {
			r.cfg.Log.Info("the extents of a queue stay for now", "queue", row.Key.Row, "err", err)
			continue
		}
		out = append(out, settings{queue: q.ID, deleted: q.Spec.Status == core.StatusDeleted, policy: policyOf(q), read: now})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range out {
		if _, still := r.mu.reading[k.queue]; still && !k.deleted { // else the row may have been read before the change
			r.mu.settings[k.queue] = k
		}
	}
	clear(r.mu.reading)
	return out
}

func (r *Runner) queueRows(ctx context.Context, queues []core.QueueID) ([]metadata.Row, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	keys := make([]metadata.Key, len(queues))
	for i, id := range queues {
		keys[i] = metadata.QueueKey(id)
	}
	return metadata.GetRows(ctx, r.cfg.Meta, metadata.Queues, keys, metadata.Quorum)
}

func policyOf(q metadata.QueueRecord) retention.Policy {
	return retention.Policy{Consumed: q.Spec.ConsumedRetention, Unconsumed: q.Spec.UnconsumedRetention}
}
