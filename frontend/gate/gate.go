// Package gate owns how many calls a frontend has under way, and when it takes any.
package gate

import (
	"context"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
)

// Gate counts the calls under way. It is closed until Open, and for good after Close. Safe for concurrent use.
type Gate struct {
	most int
	mu   struct {
		sync.Mutex
		state state
		calls int
		idle  chan struct{} // made by a waiter, closed when calls becomes 0
	}
}

type state uint8

const (
	unopened state = iota
	open
	closed
)

// New gate, for at most so many calls at once.
func New(most int) *Gate { return &Gate{most: most} }

// Open lets calls in.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.state == unopened {
		g.mu.state = open
	}
}

// Close lets no further call in. Idempotent.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.state = closed
}

// Enter admits a call, which must Leave; CodeUnavailable, CodeDraining, CodeThrottled.
func (g *Gate) Enter() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.mu.state == unopened:
		return core.Errorf(core.CodeUnavailable, "the frontend is starting; try again")
	case g.mu.state == closed:
		return core.Errorf(core.CodeDraining, "the frontend is stopping; use another one")
	case g.mu.calls >= g.most:
		return &core.Error{Code: core.CodeThrottled, Text: "too many calls are under way; try again", RetryAfter: time.Second}
	}
	g.mu.calls++
	return nil
}

// Leave ends a call that Enter admitted.
func (g *Gate) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.calls--; g.mu.calls == 0 && g.mu.idle != nil {
		close(g.mu.idle)
		g.mu.idle = nil
	}
}

// Wait returns when no call is under way, or with ctx's error.
func (g *Gate) Wait(ctx context.Context) error {
	g.mu.Lock()
	if g.mu.calls == 0 {
		g.mu.Unlock()
		return nil
	}
	if g.mu.idle == nil {
		g.mu.idle = make(chan struct{})
	}
	idle := g.mu.idle
	g.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
