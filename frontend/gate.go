package frontend

import (
	"context"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
)

// gate counts the calls under way. It is closed until open, and for good after close.
type gate struct {
	most int // set before use
	mu   struct {
		sync.Mutex
		state gateState
		calls int
		idle  chan struct{} // made by a waiter, closed when calls becomes 0
	}
}

type gateState uint8

const (
	gateNew gateState = iota
	gateOpen
	gateClosed
)

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.state == gateNew {
		g.mu.state = gateOpen
	}
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.state = gateClosed
}

// enter admits a call, which must leave; CodeUnavailable, CodeDraining, CodeThrottled.
func (g *gate) enter() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.mu.state == gateNew:
		return core.Errorf(core.CodeUnavailable, "the frontend is starting; try again")
	case g.mu.state == gateClosed:
		return core.Errorf(core.CodeDraining, "the frontend is stopping; use another one")
	case g.mu.calls >= g.most:
		return &core.Error{Code: core.CodeThrottled, Text: "too many calls are under way; try again", RetryAfter: time.Second}
	}
	g.mu.calls++
	return nil
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.calls--; g.mu.calls == 0 && g.mu.idle != nil {
		close(g.mu.idle)
		g.mu.idle = nil
	}
}

// wait returns when no call is under way, or with ctx's error.
func (g *gate) wait(ctx context.Context) error {
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
