// Package recent keeps the last answers to reads, so that calls need not read again what was read a moment ago, and go
// on for a while when it cannot be read.
package recent

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/lifecycle"
)

// Config of a Cache. All fields are needed.
type Config struct {
	// Fresh is how long an answer counts without another read. An answer whose read takes long counts for longer: twenty
	// times as long as the read took, and at most ten times Fresh.
	Fresh time.Duration
	// Stale is how old an answer may be that counts while reads fail.
	Stale time.Duration
	// Patience is how long callers wait for a read, from its beginning, while there is an older answer that counts.
	Patience time.Duration
	// Timeout bounds a read.
	Timeout time.Duration
	// Weight is what all answers together may weigh. Those not asked for longest go first.
	Weight int
	Now    func() time.Time
}

// Read reads an answer and tells what it weighs, at least 1. old is the answer before; it is zero if there is none.
type Read[V any] func(ctx context.Context, old V) (v V, weight int, err error)

// Cache keeps the last answer for each key. One read of a key is under way at a time, and all callers share it. Safe
// for concurrent use.
type Cache[K comparable, V any] struct {
	cfg   Config
	reads *lifecycle.Tasks
	mu    struct {
		sync.Mutex
		entries map[K]*list.Element // of *entry[K, V]
		used    list.List           // the entry asked for last is the first
		weight  int
	}
}

// entry is what is known of a key. Its fields are guarded by Cache.mu.
type entry[K comparable, V any] struct {
	key      K
	value    V
	known    bool      // there is a value
	at       time.Time // when the read of the value began
	until    time.Time // the value is fresh, or a read that failed is not repeated
	outdated time.Time // a value that was read before is not fresh
	weight   int
	reading  *reading[V]
}

// reading is a read under way. The other fields are set before done is closed.
type reading[V any] struct {
	began time.Time
	done  chan struct{}
	value V
	err   error
}

// New makes an empty Cache. It is to be closed.
func New[K comparable, V any](cfg Config) *Cache[K, V] {
	c := &Cache[K, V]{cfg: cfg, reads: lifecycle.NewTasks()}
	c.mu.entries = map[K]*list.Element{}
	return c
}

// Close ends the reads that are under way, and waits for them. Get reads nothing more. Idempotent.
func (c *Cache[K, V]) Close() { c.reads.Stop(errClosed) }

var errClosed = core.Errorf(core.CodeDraining, "the frontend is stopping")

// Get returns the answer for a key. It calls read unless there is a fresh answer. A read that fails, or takes longer
// than Patience, fails Get only if there is no older answer that counts. The read goes on when ctx ends; after that
// none begins.
func (c *Cache[K, V]) Get(ctx context.Context, key K, read Read[V]) (V, error) {
	now := c.cfg.Now()
	c.mu.Lock()
	e := c.entryLocked(key)
	old, counts := e.value, e.known && now.Sub(e.at) <= c.cfg.Stale
	if counts && now.Before(e.until) {
		c.mu.Unlock()
		return old, nil
	}
	r := e.reading
	if r == nil && ctx.Err() != nil {
		if !e.known {
			c.dropLocked(e)
		}
		c.mu.Unlock()
		return ended[V](ctx)
	}
	if r == nil {
		r = &reading[V]{began: now, done: make(chan struct{})}
		if !c.reads.Go(func(ctx context.Context) { c.read(ctx, e, r, old, read) }) {
			c.mu.Unlock()
			return old, errClosed
		}
		e.reading = r
	}
	c.mu.Unlock()
	var patience <-chan time.Time
	if counts {
		timer := time.NewTimer(c.cfg.Patience - now.Sub(r.began))
		defer timer.Stop()
		patience = timer.C
	}
	select {
	case <-r.done:
		if r.err != nil && counts {
			return old, nil
		}
		return r.value, r.err
	case <-patience:
		return old, nil
	case <-ctx.Done():
		return ended[V](ctx)
	}
}

func ended[V any](ctx context.Context) (none V, err error) {
	return none, core.Errorf(core.CodeUnavailable, "the call ended before this was known: %w", context.Cause(ctx))
}

// read reads the answer for an entry.
func (c *Cache[K, V]) read(ctx context.Context, e *entry[K, V], r *reading[V], old V, read Read[V]) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	began := c.cfg.Now()
	var weight int
	r.value, weight, r.err = read(ctx, old)
	now := c.cfg.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(r.done)
	e.reading = nil
	switch {
	case r.err == nil:
		e.value, e.known, e.at = r.value, true, began
		e.until = now.Add(min(max(c.cfg.Fresh, 20*now.Sub(began)), 10*c.cfg.Fresh))
		if began.Before(e.outdated) {
			e.until = time.Time{}
		}
		c.weighLocked(e, max(1, weight))
	case e.known:
		e.until = now.Add(c.cfg.Fresh)
	default:
		c.dropLocked(e)
	}
}

// Put keeps an answer that weighs 1 and is known without a read, as of a time.
func (c *Cache[K, V]) Put(key K, v V, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entryLocked(key)
	if at.Before(e.outdated) || e.known && at.Before(e.at) {
		return
	}
	e.value, e.known, e.at, e.until = v, true, at, at.Add(c.cfg.Fresh)
	c.weighLocked(e, 1)
}

// Outdate makes the next Get of a key read again, unless the answer is from a read that began at the given time or
// later.
func (c *Cache[K, V]) Outdate(key K, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	el := c.mu.entries[key]
	if el == nil {
		return
	}
	e := el.Value.(*entry[K, V])
	if at.After(e.outdated) {
		e.outdated = at
	}
	if e.at.Before(at) {
		e.until = time.Time{}
	}
}

// Weight is what all answers weigh.
func (c *Cache[K, V]) Weight() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.weight
}

// entryLocked finds or makes the entry of a key.
func (c *Cache[K, V]) entryLocked(key K) *entry[K, V] {
	if el := c.mu.entries[key]; el != nil {
		c.mu.used.MoveToFront(el)
		return el.Value.(*entry[K, V])
	}
	e := &entry[K, V]{key: key}
	c.mu.entries[key] = c.mu.used.PushFront(e)
	c.weighLocked(e, 1)
	return e
}

// weighLocked sets the weight of an entry, and makes room for it. An entry that was dropped meanwhile stays dropped.
func (c *Cache[K, V]) weighLocked(e *entry[K, V], weight int) {
	if el := c.mu.entries[e.key]; el == nil || el.Value != e {
		return
	}
	c.mu.weight += weight - e.weight
	e.weight = weight
	for c.mu.weight > c.cfg.Weight && c.mu.used.Len() > 0 {
		c.dropLocked(c.mu.used.Back().Value.(*entry[K, V]))
	}
}

func (c *Cache[K, V]) dropLocked(e *entry[K, V]) {
	el := c.mu.entries[e.key]
	if el == nil || el.Value != e {
		return
	}
	delete(c.mu.entries, e.key)
	c.mu.used.Remove(el)
	c.mu.weight -= e.weight
}
