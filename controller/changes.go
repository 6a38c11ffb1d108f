package controller

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// mostChanges bounds the changed extents that a controller remembers for others.
const mostChanges = 8192

// changed is an extent whose create row, seal row or hints this controller has changed, or may have changed.
type changed struct {
	id      core.ExtentID
	queue   core.QueueID // zero: not known
	counter uint64       // of its last change
}

// changes are the extents that this run changed last, each once (docs/adr/0070). Safe for concurrent use.
type changes struct {
	most int
	mu   struct {
		sync.Mutex
		counter uint64     // of the last change
		lost    uint64     // of the last one that was forgotten to make room
		order   *list.List // of changed, the oldest first
		byID    map[core.ExtentID]*list.Element
	}
}

func newChanges(most int) *changes {
	c := &changes{most: most}
	c.mu.order, c.mu.byID = list.New(), make(map[core.ExtentID]*list.Element)
	return c
}

// add counts a change.
func (c *changes) add(x changed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.counter++
	x.counter = c.mu.counter
	if at := c.mu.byID[x.id]; at != nil {
		old := c.mu.order.Remove(at).(changed)
		if x.queue.IsZero() {
			x.queue = old.queue
		}
	}
	c.mu.byID[x.id] = c.mu.order.PushBack(x)
	if c.mu.order.Len() > c.most {
		old := c.mu.order.Remove(c.mu.order.Front()).(changed)
		delete(c.mu.byID, old.id)
		c.mu.lost = old.counter
	}
}

// changesPart is an answer to what was changed after a counter.
type changesPart struct {
	changed  []changed
	counter  uint64 // up to which the answer goes
	complete bool   // it names all that was changed since; otherwise it names nothing
	more     bool   // something was changed after the counter of the answer
}

// since answers at most so many extents that were changed after a counter, in the order of their last changes.
func (c *changes) since(after uint64, most int) changesPart {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := changesPart{counter: c.mu.counter, complete: c.mu.lost <= after && after <= c.mu.counter}
	if !out.complete {
		return out
	}
	first := (*list.Element)(nil)
	for at := c.mu.order.Back(); at != nil && at.Value.(changed).counter > after; at = at.Prev() {
		first = at
	}
	for at := first; at != nil; at = at.Next() {
		if len(out.changed) == most {
			out.counter, out.more = out.changed[most-1].counter, true
			break
		}
		out.changed = append(out.changed, at.Value.(changed))
	}
	return out
}

// last is the counter of the last change.
func (c *changes) last() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.counter
}

// wrote counts a row that was changed, or may have been.
func (c *changes) wrote(t metadata.Table, k metadata.Key) {
	var x changed
	switch t {
	case metadata.Seals, metadata.Extents:
		id, err := core.ParseID(k.Row)
		if err != nil {
			return
		}
		x.id.ID = id
		if queue, err := core.ParseID(k.Partition); err == nil && t == metadata.Extents {
			x.queue.ID = queue
		}
	case metadata.Work:
		var ok bool
		if x.id, ok = metadata.HintedExtent(k); !ok {
			return
		}
	default:
		return
	}
	c.add(x)
}

// undone reports whether an error of a call for one row says that the row was not changed. Anything else may have been
// done, or may be done later.
func undone(err error) bool {
	switch core.CodeOf(err) {
	case core.CodeUnavailable, core.CodeNoMajority, core.CodeExists, core.CodeConflict, core.CodeNotFound, core.CodeTooLarge, core.CodeBadArgument:
		return true
	}
	return false
}

// noting is a store that notes which extents a controller changes. No caller can forget to say so.
type noting struct {
	heeded
	changes *changes
}

var (
	_ metadata.RowsGetter      = noting{}
	_ metadata.VersionInserter = noting{}
)

func (s noting) note(t metadata.Table, k metadata.Key, err error) error {
	if !undone(err) {
		s.changes.wrote(t, k)
	}
	return err
}

func (s noting) Insert(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) error {
	_, err := s.InsertVersion(ctx, t, k, value)
	return err
}

// InsertVersion implements metadata.VersionInserter.
func (s noting) InsertVersion(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) (metadata.Version, error) {
	version, err := s.heeded.InsertVersion(ctx, t, k, value)
	return version, s.note(t, k, err)
}

func (s noting) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte, ttl time.Duration) error {
	return s.note(t, k, s.heeded.Update(ctx, t, k, old, value, ttl))
}

func (s noting) Delete(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version) error {
	return s.note(t, k, s.heeded.Delete(ctx, t, k, old))
}

func (s noting) Put(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, at time.Time, ttl time.Duration, c metadata.Consistency) error {
	return s.note(t, k, s.heeded.Put(ctx, t, k, value, at, ttl, c))
}

// PutAll counts all rows also when it fails: some may be written.
func (s noting) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, c metadata.Consistency) error {
	err := s.heeded.PutAll(ctx, t, rows, c)
	for _, row := range rows {
		s.changes.wrote(t, row.Key)
	}
	return err
}

func (s noting) Remove(ctx context.Context, t metadata.Table, k metadata.Key, at time.Time, c metadata.Consistency) error {
	return s.note(t, k, s.heeded.Remove(ctx, t, k, at, c))
}
