package controller

import (
	"context"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

const (
	// orphanFor is for how long a queue must have been unknown before its extents are removed: an operator who restores
	// metadata has that long.
	orphanFor = 7 * 24 * time.Hour
	// orphanUnseen is when a queue of which no store has shown an extent is forgotten. Stores show all they have once a
	// day.
	orphanUnseen = 3 * 24 * time.Hour
	// maxOrphanQueues bounds how many unknown queues are remembered. The extents of others stay until there is room.
	maxOrphanQueues = 10_000
)

// orphans are queues of which stores have extents, and metadata have nothing. Safe for concurrent use.
type orphans struct {
	most int
	mu   struct {
		sync.Mutex
		queues map[core.QueueID]*orphanQueue
		told   time.Time       // when the log was told last
		news   int             // extents seen for the first time since
		some   []core.ExtentID // of them
	}
}

type orphanQueue struct {
	since, last time.Time
	now         bool // an operator ends it
}

func newOrphans() *orphans {
	o := &orphans{most: maxOrphanQueues}
	o.mu.queues = make(map[core.QueueID]*orphanQueue)
	return o
}

// seen records that a store has an extent of an unknown queue. due: that has been so for long enough, or an operator
// ends it.
func (o *orphans) seen(e core.Extent, now time.Time) (due bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	q := o.mu.queues[e.Queue]
	if q == nil {
		if len(o.mu.queues) >= o.most {
			for id, x := range o.mu.queues {
				if now.Sub(x.last) > orphanUnseen {
					delete(o.mu.queues, id)
				}
			}
		}
		if len(o.mu.queues) >= o.most {
			return false
		}
		q = &orphanQueue{since: now}
		o.mu.queues[e.Queue] = q
		if o.mu.news++; len(o.mu.some) < mostNamed {
			o.mu.some = append(o.mu.some, e.ID)
		}
	} else if now.Sub(q.last) > orphanUnseen { // for all that is known it was there meanwhile
		q.since, q.now = now, false
	}
	q.last = now
	return q.now || now.Sub(q.since) >= orphanFor
}

// asked reports whether an operator ends the queue.
func (o *orphans) asked(queue core.QueueID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	q := o.mu.queues[queue]
	return q != nil && q.now
}

// end takes an operator's word for all that are known.
func (o *orphans) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, q := range o.mu.queues {
		q.now = true
	}
}

// ended forgets a queue.
func (o *orphans) ended(queue core.QueueID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.mu.queues, queue)
}

// dueLog answers how many extents of new queues the log is to be told of, and some of them; 0: nothing now.
func (o *orphans) dueLog(now time.Time) (some []core.ExtentID, news int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.news == 0 || !o.mu.told.IsZero() && now.Sub(o.mu.told) < orphansEvery {
		return nil, 0
	}
	some, news = o.mu.some, o.mu.news
	o.mu.told, o.mu.some, o.mu.news = now, nil, 0
	return some, news
}

// endOrphan writes the row of a deleted queue for an orphan's queue, if it is proven that there is no such queue, or an
// operator says so. From then on the extent is one of a deleted queue: registered, sealed, retired and removed like any
// other. It answers whether the row is there.
func (h *Host) endOrphan(ctx context.Context, x stray) bool {
	ctx, cancel := context.WithTimeout(ctx, sealTimeout)
	defer cancel()
	queue := x.extent.Queue
	if !h.strays.orphans.asked(queue) {
		if gone, err := h.provenGone(ctx, x); err != nil || !gone {
			return false
		}
	}
	now := h.deps.now()
	row := metadata.QueueRecord{ID: queue, Created: queue.Time(), Spec: core.QueueSpec{Path: "/deleted/" + queue.String(), Status: core.StatusDeleted}}
	// The compare-and-set is the serial look: a queue that is known after all stays as it is.
	err := metadata.Create(ctx, h.deps.Meta, metadata.Queues, metadata.QueueKey(queue), row)
	if err != nil && core.CodeOf(err) != core.CodeExists {
		h.log.Info("the extents of an unknown queue stay for now", "queue", queue, "err", err)
		return false
	}
	h.strays.orphans.ended(queue)
	h.log.Warn("the extents of an unknown queue are removed", "queue", queue, "extent", x.extent.ID, "at", now)
	return true
}

// provenGone reports whether this metadata would know the queue if it was one of this cluster: there is a queue that is
// older, so the metadata was there when the queue would have been made; and each store that has the extent has another
// one that the metadata know, on the same disk, so the stores and the metadata belong together. The extent has no row
// either. Ids of queues are never used again.
func (h *Host) provenGone(ctx context.Context, x stray) (bool, error) {
	created, err := h.createdRow(ctx, x.extent)
	if err != nil || !created.Created.IsZero() {
		return false, err
	}
	older := false
	for r, err := range metadata.All[metadata.QueueRecord](ctx, h.deps.Meta, metadata.Queues, metadata.PartitionID, metadata.Quorum) {
		if err != nil {
			return false, err
		}
		older = r.Value.ID.Time().Before(x.extent.Queue.Time())
		break // the first is the oldest
	}
	if !older {
		return false, nil
	}
	for id, disk := range x.stores {
		if !h.extents.AnyOn(core.Place{Store: id, Disk: disk}) {
			return false, nil
		}
	}
	return true, nil
}
