package frontend

import (
	"context"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/publish"
	"github.com/columbamq/columba/metadata"
)

// publishers keeps a publisher per queue that calls of Publish use, and closes those that nobody used for a while. The host that owns
// it opens it, sweeps it and closes it.
type publishers struct {
	make func(metadata.QueueRecord) *publish.Publisher
	most int
	idle time.Duration
	now  func() time.Time
	wg   sync.WaitGroup // runs and closes of publishers
	mu   struct {
		sync.Mutex
		ctx     context.Context // of the publishers; nil while not open
		cancel  context.CancelFunc
		byQueue map[core.QueueID]*lent
	}
}

// lent is a publisher and who uses it.
type lent struct {
	queue core.QueueID
	pub   *publish.Publisher
	users int
	since time.Time // unused, while users is 0
}

// closeTimeout bounds the close of a publisher that nobody uses.
const closeTimeout = 2 * time.Second

func (p *publishers) open() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.ctx, p.mu.cancel = context.WithCancel(context.Background())
	p.mu.byQueue = make(map[core.QueueID]*lent)
}

// take lends the queue's publisher, which goes back by giveBack. When there are too many and all are in use: CodeThrottled.
func (p *publishers) take(q metadata.QueueRecord) (*lent, error) {
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
	l := &lent{queue: q.ID, pub: p.make(q), users: 1}
	p.mu.byQueue[q.ID] = l
	ctx := p.mu.ctx
	p.wg.Go(func() { l.pub.Run(ctx) })
	return l, nil
}

func (p *publishers) giveBack(l *lent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.users--
	l.since = p.now()
}

// evictLocked closes the one that is unused for the longest time, if there is any.
func (p *publishers) evictLocked() bool {
	var oldest *lent
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

// sweep closes what nobody used for the idle time.
func (p *publishers) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.mu.byQueue {
		if l.users == 0 && p.now().Sub(l.since) >= p.idle {
			p.dropLocked(l)
		}
	}
}

func (p *publishers) dropLocked(l *lent) {
	delete(p.mu.byQueue, l.queue)
	ctx := p.mu.ctx
	p.wg.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, closeTimeout)
		defer cancel()
		l.pub.Close(ctx) // nothing is in flight but what a caller gave up: its outcome was reported as unknown
	})
}

// close ends all publishers and joins them; what is still in flight fails. Idempotent.
func (p *publishers) close() {
	p.mu.Lock()
	p.mu.byQueue = nil
	cancel := p.mu.cancel
	p.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	p.wg.Wait()
}
