package frontend

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

const (
	// limitTries is how often a queue is made and given up when others are made at the same time through other frontends.
	limitTries = 4
	// farBelow its limit a namespace is when it may have so many more queues. Then uncounted queues are made on one count.
	farBelow, uncounted = 1000, 100
	// countHolds is for how long a count holds: so many times what it took, and this at most.
	countHolds, mostCountHolds = 10, 30 * time.Second
	// mostCounts are kept.
	mostCounts = 1000
)

// queueCounts are the namespaces with a limit of queues. Safe for concurrent use.
type queueCounts struct {
	mu     sync.Mutex
	byName map[string]*queueCount
}

// queueCount is how many queues a namespace had when this frontend counted them last. Safe for concurrent use.
type queueCount struct {
	turn chan struct{} // capacity 1: a count, or the creation of a queue near the limit
	mu   sync.Mutex
	have int64 // at least, and those that this frontend has made since
	made int   // of them, since
	til  time.Time
	at   time.Time
}

func newQueueCounts() *queueCounts { return &queueCounts{byName: make(map[string]*queueCount)} }

func (c *queueCounts) of(namespace string, now time.Time) *queueCount {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.byName[namespace]
	if q != nil {
		return q
	}
	if len(c.byName) >= mostCounts {
		for name, old := range c.byName {
			if len(old.turn) == 0 && !old.holds(now) {
				delete(c.byName, name)
			}
		}
	}
	q = &queueCount{turn: make(chan struct{}, 1)}
	c.byName[namespace] = q
	return q
}

func (q *queueCount) holds(now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.holdsLocked(now)
}

func (q *queueCount) holdsLocked(now time.Time) bool { return !now.Before(q.at) && now.Before(q.til) }

// makeOne reports whether a queue may be made without another count, and counts it.
func (q *queueCount) makeOne(most int64, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.holdsLocked(now) || q.made >= uncounted || most-q.have < farBelow {
		return false
	}
	q.have++
	q.made++
	return true
}

// full reports whether the namespace may have all of its queues; without a count it may.
func (q *queueCount) full(most int64, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.holdsLocked(now) || q.have >= most
}

func (q *queueCount) counted(have int64, began, ended time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.have, q.made, q.at, q.til = have, 0, began, began.Add(min(countHolds*max(ended.Sub(began), 0), mostCountHolds))
}

// errTooMany: the namespace has more queues than it may have, with the name that was written.
var errTooMany = errors.New("one queue too many")

// claimLimited makes a queue unless its namespace has all that it may have. Far below the limit a count holds for a
// while, see makeOne. Near the limit creations through one frontend take turns, and each does this:
//
//  1. It writes the name, which is counted from then on. So of those that are made at once, none is overlooked by all.
//  2. It counts, and makes the queue unless there are too many.
//  3. Of one too many it writes the row as a deleted queue's, see unmake.
//
// A creation that meets a name without a queue does the steps 2 and 3 with it. Other calls that meet one, as a listing,
// make the queue without a count. The first row of the queue decides: a queue that was answered to anybody stays. So
// only such calls can make more queues than the limit, and at most as many as are being created.
func (s *service) claimLimited(ctx context.Context, spec core.QueueSpec) (metadata.QueueRecord, error) {
	name := core.Namespace(spec.Path)
	r, _, err := metadata.Read[metadata.NamespaceRecord](ctx, s.meta, metadata.Namespaces, metadata.NamespaceKey(name), metadata.Quorum)
	most := r.Spec.MaxQueues
	if err != nil && core.CodeOf(err) != core.CodeNotFound {
		return metadata.QueueRecord{}, core.Errorf(core.CodeOf(err), "read the limits of namespace %s: %w", name, err)
	}
	fresh := func() metadata.NameRecord {
		return metadata.NameRecord{Queue: core.QueueID{ID: core.NewID(s.now())}, Spec: spec}
	}
	if most == 0 {
		return s.claim(ctx, fresh(), s.makeQueue, nil)
	}
	count := s.counts.of(name, s.now())
	free, err := s.turnToCount(ctx, count, name, most)
	switch {
	case err != nil:
		return metadata.QueueRecord{}, err
	case free:
		return s.claim(ctx, fresh(), s.makeQueue, nil)
	}
	defer func() { <-count.turn }()
	counted := func(ctx context.Context, half metadata.NameRecord) (metadata.QueueRecord, error) {
		have, err := s.recount(ctx, count, name, most)
		if err == nil && have <= most {
			return s.makeQueue(ctx, half)
		}
		if err == nil {
			err = errTooMany
		}
		return s.unmake(ctx, half, err)
	}
	for range limitTries {
		if count.full(most, s.now()) {
			have, err := s.recount(ctx, count, name, most-1)
			if err != nil {
				return metadata.QueueRecord{}, err
			}
			if have >= most {
				q, ok, err := s.there(ctx, spec, counted)
				if ok || err != nil && !errors.Is(err, errTooMany) {
					return q, err
				}
				break
			}
		}
		q, err := s.claim(ctx, fresh(), counted, nil)
		if !errors.Is(err, errTooMany) {
			return q, err
		}
		select {
		case <-time.After(rand.N(50 * time.Millisecond)):
		case <-ctx.Done():
		}
	}
	return metadata.QueueRecord{}, core.Errorf(core.CodeConflict, "namespace %s has reached its limit of queues, %d; delete one, or allow more with: columba update namespace %s --max-queues N", name, most, name)
}

// unmake deletes a name whose queue is not made, because of why, which is its error then. CodeExists if another call
// has made the queue: that one stays.
func (s *service) unmake(ctx context.Context, name metadata.NameRecord, why error) (none metadata.QueueRecord, _ error) {
	made, err := s.deletion().Unmade(ctx, name)
	switch {
	case err != nil:
		return none, unmade{core.Errorf(core.CodeUnknown, "queue %s is half made, is perhaps one too many, and may be given up: %w; see with `columba show queue` whether it is there, or create it again", name.Spec.Path, err)}
	case made:
		return none, core.Errorf(core.CodeExists, "queue %s was made meanwhile", name.Spec.Path)
	}
	return none, unmade{why}
}

// there looks for the queue of a path in a namespace that is full: CodeExists. A half-made one with the same settings,
// which counts already, is made by create.
func (s *service) there(ctx context.Context, spec core.QueueSpec, create maker) (q metadata.QueueRecord, made bool, err error) {
	name, _, err := metadata.Read[metadata.NameRecord](ctx, s.meta, metadata.Names, metadata.NameKey(spec.Path), metadata.Serial)
	switch {
	case core.CodeOf(err) == core.CodeNotFound || err == nil && name.Queue.IsZero():
		return q, false, nil
	case err != nil:
		return q, false, core.Errorf(core.CodeOf(err), "look up queue %s: %w", spec.Path, err)
	}
	q, made, err = s.finished(ctx, name, create)
	switch {
	case err != nil || q.Spec.Status == core.StatusDeleted:
		return q, false, err
	case made && sameQueue(name, metadata.NameRecord{Spec: spec}):
		return q, true, nil
	}
	return q, false, core.Errorf(core.CodeExists, "queue %s exists", spec.Path)
}

// turnToCount reports whether a queue may be made without another count. Else it has the turn.
func (s *service) turnToCount(ctx context.Context, count *queueCount, name string, most int64) (free bool, err error) {
	if count.makeOne(most, s.now()) {
		return true, nil
	}
	select {
	case count.turn <- struct{}{}:
	case <-ctx.Done():
		return false, core.Errorf(core.CodeUnavailable, "the queues of namespace %s are counted for one creation after another, and many are waiting: %w", name, context.Cause(ctx))
	}
	leave := func() { <-count.turn }
	if count.makeOne(most, s.now()) { // another creation has counted meanwhile
		leave()
		return true, nil
	}
	if most <= farBelow {
		return false, nil
	}
	if !count.holds(s.now()) {
		if _, err := s.recount(ctx, count, name, most-1); err != nil {
			leave()
			return false, err
		}
	}
	if count.makeOne(most, s.now()) {
		leave()
		return true, nil
	}
	return false, nil
}

// recount counts the queues of a namespace, see countQueues. The caller has the turn.
func (s *service) recount(ctx context.Context, count *queueCount, name string, enough int64) (int64, error) {
	began := s.now()
	have, err := s.countQueues(ctx, name, enough)
	if err == nil {
		count.counted(have, began, s.now())
	}
	return have, err
}

// countQueues is how many queues of users a namespace has. It sees every queue whose creation has answered before. A
// queue that is being deleted does not count: it takes no message. If there are no more than enough names, those may
// count, too.
func (s *service) countQueues(ctx context.Context, name string, enough int64) (n int64, err error) {
	var keys []metadata.Key
	for after := ""; ; {
		rows, more, err := metadata.Prefix[metadata.NameRecord](ctx, s.meta, metadata.Names, metadata.PartitionPath, name+"/", after, maxPage, metadata.Quorum)
		if err != nil {
			return 0, core.Errorf(core.CodeOf(err), "count the queues of namespace %s: %w", name, err)
		}
		for _, r := range rows {
			if !r.Value.Queue.IsZero() && r.Value.Owner.IsZero() {
				keys = append(keys, metadata.QueueKey(r.Value.Queue))
			}
		}
		if !more || len(rows) == 0 {
			break
		}
		after = rows[len(rows)-1].Key.Row
	}
	if n = int64(len(keys)); n <= enough {
		return n, nil
	}
	for len(keys) > 0 {
		page := keys[:min(len(keys), maxPage)]
		keys = keys[len(page):]
		queues, err := metadata.GetRows(ctx, s.meta, metadata.Queues, page, metadata.One) // a copy that is behind counts more of them
		if err != nil {
			return 0, core.Errorf(core.CodeOf(err), "count the queues of namespace %s: %w", name, err)
		}
		for _, row := range queues {
			q, err := metadata.Decode[metadata.QueueRecord](metadata.Queues, row)
			if err != nil {
				return 0, err
			}
			if q.Spec.Status == core.StatusDeleted {
				n--
			}
		}
	}
	return n, nil
}
