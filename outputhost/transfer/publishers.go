package transfer

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/publish"
	"github.com/columbamq/columba/wire"
)

// idle is for how long an unused publisher is kept.
const idle = time.Minute

// publishers are those of built-in queues: one serves such a queue while it has work.
type publishers struct {
	mu   sync.Mutex
	open map[address]*publisher
}

// address of a built-in queue. A group that is made anew has others, under the same paths.
type address struct {
	group core.GroupID
	path  string
}

type publisher struct {
	*publish.Publisher
	cancel context.CancelFunc
	used   time.Time
	told   []Group // who got outcomes since they were pumped; of the publisher's goroutine that tells them
}

// publish hands a record to the publisher of a queue, which tells done of the outcome unless there is an error.
func (m *Mover) publish(ctx context.Context, g Group, to address, record *wire.Record, timeout time.Duration, done func(error)) error {
	p, err := m.publisher(to)
	if err != nil {
		return err
	}
	return p.Append(ctx, record, timeout, publish.DoneFunc(func(_ core.MessageID, _ core.Receipt, err error) {
		if !slices.Contains(p.told, g) {
			p.told = append(p.told, g)
		}
		done(err)
	}))
}

// pump has the groups go on that were told outcomes.
func (p *publisher) pump() {
	for _, g := range p.told {
		g.Pump()
	}
	clear(p.told)
	p.told = p.told[:0]
}

// CloseIdle closes the publishers that were not used for a while. After many groups had something to transfer, nothing
// may be transferred for long: so the caller calls it now and then.
func (m *Mover) CloseIdle() {
	now := m.cfg.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for at, p := range m.open {
		if now.Sub(p.used) > idle {
			p.cancel()
			delete(m.open, at)
		}
	}
}

// publisher finds or makes the one of a queue.
func (m *Mover) publisher(to address) (*publisher, error) {
	now := m.cfg.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.open[to]; p != nil {
		p.used = now
		return p, nil
	}
	p := &publisher{used: now}
	p.Publisher = publish.New(publish.Config{
		Queue: to.path, Client: m.cfg.Client, Internal: true, Owner: to.group, Once: true,
		Route: func(context.Context) ([]publish.Host, error) { return m.hosts() },
		Dial:  m.cfg.Dial,
		Told:  p.pump,
		Log:   m.cfg.Log,
	})
	ctx, cancel := context.WithCancel(m.cfg.Tasks.Context())
	p.cancel = cancel
	ok := m.cfg.Tasks.Go(func(context.Context) {
		defer cancel()
		if err := p.Run(ctx); err != nil && ctx.Err() == nil {
			m.cfg.Log.Warn("the publisher of a built-in queue ended; the next transfer opens another", "queue", to.path, "err", err)
		}
	})
	if !ok {
		cancel()
		return nil, core.Errorf(core.CodeDraining, "output host is stopping")
	}
	m.open[to] = p
	return p, nil
}

// hosts are the input hosts there are: a built-in queue is written by hosts only, so no frontend has to be asked.
func (m *Mover) hosts() ([]publish.Host, error) {
	out := m.cfg.Hosts()
	if len(out) == 0 {
		return nil, core.Errorf(core.CodeUnavailable, "no input host is known")
	}
	return out, nil
}
