package client

import (
	"context"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire/ws"
)

// dialTimeout bounds one attempt to connect to a host.
const dialTimeout = 5 * time.Second

// links keeps one connection per host and path, shared by all streams to it.
type links struct {
	ctx   context.Context
	start func(func()) error
	opts  ws.Options
	mu    struct {
		sync.Mutex
		open map[linkKey]*link
	}
}

type linkKey struct{ addr, path string }

// link is one connection, or the attempt to make it.
type link struct {
	made chan struct{} // closed when mux or err is set
	mux  *ws.Mux
	err  error
}

func newLinks(ctx context.Context, start func(func()) error, o options) *links {
	l := &links{ctx: ctx, start: start, opts: ws.Options{NetDial: o.netDial}}
	l.mu.open = make(map[linkKey]*link)
	return l
}

// get is the connection to addr's path; it dials when there is none. Concurrent callers share one attempt.
func (l *links) get(ctx context.Context, addr, path string) (*ws.Mux, error) {
	key := linkKey{addr, path}
	l.mu.Lock()
	k := l.mu.open[key]
	if k == nil {
		k = &link{made: make(chan struct{})}
		if err := l.start(func() { l.run(key, k) }); err != nil {
			l.mu.Unlock()
			return nil, err
		}
		l.mu.open[key] = k
	}
	l.mu.Unlock()
	select {
	case <-k.made:
		return k.mux, k.err
	case <-ctx.Done():
		return nil, core.Errorf(core.CodeUnavailable, "connect to %s: %w", addr, context.Cause(ctx))
	}
}

func (l *links) run(key linkKey, k *link) {
	ctx, cancel := context.WithTimeout(l.ctx, dialTimeout)
	conn, err := ws.Dial(ctx, key.addr, key.path, l.opts)
	cancel()
	if err != nil {
		k.err = core.Errorf(core.CodeUnavailable, "connect to %s: %w", key.addr, err)
		l.forget(key)
		close(k.made)
		return
	}
	k.mux = ws.NewMux(conn, nil)
	close(k.made)
	k.mux.Run(l.ctx) // every stream is told how it ended
	l.forget(key)
}

func (l *links) forget(key linkKey) {
	l.mu.Lock()
	delete(l.mu.open, key)
	l.mu.Unlock()
}
