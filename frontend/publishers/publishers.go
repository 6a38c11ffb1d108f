// Package publishers owns the publishers that single calls of Publish use, one for each queue.
package publishers

import (
	"context"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/publish"
	"github.com/columbamq/columba/metadata"
)

// Pool keeps a publisher per queue between calls, and closes those that nobody used for a while. Its owner opens it,
// sweeps it and closes it. Safe for concurrent use.
type Pool struct {
	make func(metadata.QueueRecord) *publish.Publisher
	most int
	idle time.Duration
	wg   sync.WaitGroup // runs and closes of publishers
	mu   struct {
		sync.Mutex
		ctx     context.Context // of the publishers; nil while not open
		cancel  context.CancelFunc
		byQueue map[core.QueueID]*Lent
	}
}

// New pool of at most so many publishers, each of which is closed when nobody used it for the idle time.
func New(most int, idle time.Duration, fresh func(metadata.QueueRecord) *publish.Publisher) *Pool {
	return &Pool{make: fresh, most: most, idle: idle}
}

// Lent is a publisher that one call uses, or several.
type Lent struct {
	*publish.Publisher
	queue core.QueueID
	users int
	since time.Time // unused, while users is 0
}

// closeTimeout bounds the close of a publisher that nobody uses.
const closeTimeout = 2 * time.Second

// Open has the pool lend publishers.
func (p *Pool) Open() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.ctx, p.mu.cancel = context.WithCancel(context.Background())
	p.mu.byQueue = make(map[core.QueueID]*Lent)
}

// Take lends the queue's publisher, which goes back by GiveBack. When there are too many and all are in use:
// CodeThrottled.
func (p *Pool) Take(q metadata.QueueRecord) (*Lent, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.byQueue == nil {
		return nil, core.Errorf(core.CodeDraining, "the frontend is stopping; use another one")
	}
	if l := p.mu.byQueue[q.ID]; l != nil {
		l.users++
		return l, nil
	}
	if len(p.mu.byQueue) >= p.most && !p.evictLocked() {
		return nil, &core.Error{Code: core.CodeThrottled, Text: "too many queues are being published to by single calls; try again", RetryAfter: time.Second}
	}
	l := &Lent{Publisher: p.make(q), queue: q.ID, users: 1}
	p.mu.byQueue[q.ID] = l
	ctx := p.mu.ctx
	p.wg.Go(func() { l.Run(ctx) })
	return l, nil
}

// GiveBack ends a call's use of a publisher.
func (p *Pool) GiveBack(l *Lent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.users--
	l.since = time.Now()
}

// evictLocked closes the one that is unused for the longest time, if there is any.
func (p *Pool) evictLocked() bool {
	var oldest *Lent
	for _, l := range p.mu.byQueue {
		if l.users == 0 && (oldest == nil || l.since.Before(oldest.since)) {
			oldest = l
		}
	}
	if oldest == nil {
		return false
	}
	p.dropLocked(oldest)
	return true
}

// Sweep closes what nobody used for the idle time.
func (p *Pool) Sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.mu.byQueue {
		if l.users == 0 && time.Since(l.since) >= p.idle {
			p.dropLocked(l)
		}
	}
}

func (p *Pool) dropLocked(l *Lent) {
	delete(p.mu.byQueue, l.queue)
	ctx := p.mu.ctx
	p.wg.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, closeTimeout)
		defer cancel()
		l.Close(ctx) // nothing is in flight but what a caller gave up: its outcome was reported as unknown
	})
}

// Close ends all publishers and joins them; what is still in flight fails. Idempotent.
func (p *Pool) Close() {
	p.mu.Lock()
	p.mu.byQueue = nil
	cancel := p.mu.cancel
	p.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	p.wg.Wait()
}
