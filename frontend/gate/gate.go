// Package gate owns how many calls a frontend has under way, of whom, and when it takes any.
package gate

import (
	"context"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
)

// Gate counts the calls under way; long polls, which wait on purpose, apart from the others, which thus find a place. It is closed until
// Open, and for good after Close. Safe for concurrent use.
//
// So that one client leaves places to others, calls of one address take at most three quarters of each kind's, and the polls of one group
// a quarter of theirs.
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
	taken     int
	byAddress map[string]int
	byGroup   map[string]int
}

// Call says whose call it is.
type Call struct {
	Address string // of the client, without its port
	Poll    bool   // it waits on purpose
	Group   string // of a poll
}

func (c Call) kind() int {
	if c.Poll {
		return 1
	}
	return 0
}

// Parts of the places that one address and one group may have.
const (
	addressShare = 3.0 / 4
	groupShare   = 1.0 / 4
)

// shareOf is that part of most, but one place at least.
func shareOf(most int, share float64) int { return max(1, int(float64(most)*share)) }

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
		g.mu.kinds[i] = places{byAddress: map[string]int{}, byGroup: map[string]int{}}
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
	case c.Poll && p.byGroup[c.Group] >= shareOf(most, groupShare):
		return busy("too many pulls of the group wait; pull with fewer, or without a wait")
	case p.byAddress[c.Address] >= shareOf(most, addressShare):
		return busy("too many calls of this address are under way; try again")
	case p.taken >= most && c.Poll:
		return busy("too many pulls wait; try again, or pull without a wait")
	case p.taken >= most:
		return busy("too many calls are under way; try again")
	}
	p.taken++
	p.byAddress[c.Address]++
	if c.Poll {
		p.byGroup[c.Group]++
	}
	return nil
}

func busy(text string) error {
	return &core.Error{Code: core.CodeThrottled, Text: text, RetryAfter: time.Second}
}

// Leave ends a call that Enter admitted.
func (g *Gate) Leave(c Call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := &g.mu.kinds[c.kind()]
	p.taken--
	less(p.byAddress, c.Address)
	if c.Poll {
		less(p.byGroup, c.Group)
	}
	if g.taken() == 0 && g.mu.idle != nil {
		close(g.mu.idle)
		g.mu.idle = nil
	}
}

func less(counts map[string]int, key string) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
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
