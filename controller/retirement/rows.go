package retirement

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

const (
	// queuesAtOnce bounds the rows of queues that are read by one call.
	queuesAtOnce = 100
	// queuesInTurn is how many rows that are known are read again in each round, the oldest first. Of 10,000 queues each is
	// read every three minutes.
	queuesInTurn = 500
)

// queueRows are rows of queues as they were read last. Safe for concurrent use.
type queueRows struct {
	mu struct {
		sync.Mutex
		byID map[core.QueueID]queueRow
	}
}

type queueRow struct {
	metadata.QueueRecord
	read time.Time
}

// forget has a row read in the next round: it has changed.
func (x *queueRows) forget(id core.QueueID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.mu.byID, id)
}

// due answers which rows are to be read now: those of queues that are not known, and some of the others. Rows of other
// queues are forgotten.
func (x *queueRows) due(queues []core.QueueID) (out []core.QueueID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	kept, known := make(map[core.QueueID]queueRow, len(queues)), make([]core.QueueID, 0, len(queues))
	for _, id := range queues {
		if row, ok := x.mu.byID[id]; ok {
			kept[id], known = row, append(known, id)
		} else {
			out = append(out, id)
		}
	}
	x.mu.byID = kept
	slices.SortFunc(known, func(a, b core.QueueID) int { return kept[a].read.Compare(kept[b].read) })
	return append(out, known[:min(len(known), queuesInTurn)]...)
}

func (x *queueRows) put(q metadata.QueueRecord, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.byID[q.ID] = queueRow{q, now}
}

func (x *queueRows) get(id core.QueueID) (metadata.QueueRecord, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	row, ok := x.mu.byID[id]
	return row.QueueRecord, ok
}

// queues yields the rows of the queues with extents, except those that were never read. They may be old: the caller reads
// a row again at Serial before it acts on it. Serial reads of all queues would fill the time between two rounds.
func (r *Runner) queues(ctx context.Context) iter.Seq[metadata.QueueRecord] {
	return func(yield func(metadata.QueueRecord) bool) {
		others := func(id core.QueueID) bool { return !r.cfg.Responsible(id.ID) }
		queues := slices.DeleteFunc(r.cfg.Extents.Queues(), others)
		for some := range slices.Chunk(r.rows.due(queues), queuesAtOnce) {
			if err := r.readQueues(ctx, some); err != nil && ctx.Err() == nil {
				r.cfg.Log.Info("the extents of some queues stay for now: their rows cannot be read", "queues", len(some), "err", err)
			}
		}
		for _, id := range queues {
			q, ok := r.rows.get(id)
			if ctx.Err() != nil || ok && !yield(q) {
				return
			}
		}
	}
}

func (r *Runner) readQueues(ctx context.Context, queues []core.QueueID) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	keys := make([]metadata.Key, len(queues))
	for i, id := range queues {
		keys[i] = metadata.QueueKey(id)
	}
	rows, err := metadata.GetRows(ctx, r.cfg.Meta, metadata.Queues, keys, metadata.Quorum)
	if err != nil {
		return err
	}
	for _, row := range rows {
		q, err := metadata.Decode[metadata.QueueRecord](metadata.Queues, row)
		if err != nil {
			r.cfg.Log.Info("the extents of a queue stay for now", "queue", row.Key.Row, "err", err)
			continue
		}
		r.rows.put(q, r.cfg.Now())
	}
	return nil
}
