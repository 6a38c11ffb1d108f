// Package gate limits the calls in progress at a frontend.
package gate

import (
	"context"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
)

// Gate counts the calls under way; long polls, which wait on purpose, apart from the others, which thus find a place.
// It is closed until Open, and for good after Close. Safe for concurrent use.
//
// So that one group leaves places to others, its polls take at most a quarter of theirs. How many calls one client may
// have under way is bounded before they are read, by whoever serves the port.
type Gate struct {
	most [2]int // by kind
	mu   struct {
		sync.Mutex
		state state
		kinds [2]places
		idle  chan struct{} // made by a waiter, closed when no call is under way
	}
}

// places are those that calls of one kind have.
type places struct {
	taken   int
	byGroup map[string]int
}

// Call says of what kind a call is.
type Call struct {
	Poll  bool   // it waits on purpose
	Group string // of a poll
}

func (c Call) kind() int {
	if c.Poll {
		return 1
	}
	return 0
}

// ofGroup is how many of most places the polls of one group may have: a quarter, but one at least.
func ofGroup(most int) int { return max(1, most/4) }

type state uint8

const (
	unopened state = iota
	open
	closed
)

// New gate, for at most so many calls at once, and so many long polls beside them.
func New(calls, polls int) *Gate {
	g := &Gate{most: [2]int{calls, polls}}
	for i := range g.mu.kinds {
		g.mu.kinds[i] = places{byGroup: map[string]int{}}
	}
	return g
}

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
func (g *Gate) Enter(c Call) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	most, p := g.most[c.kind()], &g.mu.kinds[c.kind()]
	switch {
	case g.mu.state == unopened:
		return core.Errorf(core.CodeUnavailable, "the frontend is starting; try again")
	case g.mu.state == closed:
		return core.Errorf(core.CodeDraining, "the frontend is stopping; use another one")
	case c.Poll && p.byGroup[c.Group] >= ofGroup(most):
		return busy("%d pulls of this group wait, which is the limit; pull with fewer at once, or without a wait", ofGroup(most))
	case p.taken >= most && c.Poll:
		return busy("%d pulls wait, which is the limit; try again in a second, or pull without a wait", most)
	case p.taken >= most:
		return busy("%d calls are under way, which is the limit; try again in a second", most)
	}
	p.taken++
	if c.Poll {
		p.byGroup[c.Group]++
	}
	return nil
}

func busy(text string, limit int) error {
	err := core.Errorf(core.CodeThrottled, text, limit)
	err.RetryAfter = time.Second
	return err
}

// Leave ends a call that Enter admitted.
func (g *Gate) Leave(c Call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := &g.mu.kinds[c.kind()]
	p.taken--
	if c.Poll {
		if p.byGroup[c.Group]--; p.byGroup[c.Group] == 0 {
			delete(p.byGroup, c.Group)
		}
	}
	if g.taken() == 0 && g.mu.idle != nil {
		close(g.mu.idle)
		g.mu.idle = nil
	}
}

// taken is how many calls of all kinds are under way. With mu.
func (g *Gate) taken() int { return g.mu.kinds[0].taken + g.mu.kinds[1].taken }

// Wait returns when no call is under way, or with ctx's error.
func (g *Gate) Wait(ctx context.Context) error {
	g.mu.Lock()
	if g.taken() == 0 {
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
