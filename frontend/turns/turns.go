// Package turns queues the pulls that wait for a group's messages: some ask the group's owners, the others wait for
// their turn.
package turns

import (
	"context"
	"slices"
	"sync"
)

// Turns lets a bounded number of pulls of a group ask one owner at once. The others wait in line, first come first
// served: a pull in line holds a channel, a pull that asks holds a connection. Safe for concurrent use.
type Turns struct {
	most int
	mu   struct {
		sync.Mutex
		lines map[Of]*line // those with a turn under way
	}
}

// Of says what a pull asks for, and whom.
type Of struct{ Queue, Group, Owner string }

type line struct {
	asking  int
	waiting []chan struct{} // closed when the turn has come
}

// New makes Turns for at most so many pulls of a group at one owner.
func New(most int) *Turns {
	t := &Turns{most: most}
	t.mu.lines = map[Of]*line{}
	return t
}

// Begin waits for a turn until ctx ends, and reports whether it has come; End must follow then.
func (t *Turns) Begin(ctx context.Context, of Of) bool {
	t.mu.Lock()
	l := t.mu.lines[of]
	if l == nil {
		l = &line{}
		t.mu.lines[of] = l
	}
	if l.asking < t.most {
		l.asking++
		t.mu.Unlock()
		return true
	}
	turn := make(chan struct{})
	l.waiting = append(l.waiting, turn)
	t.mu.Unlock()
	select {
	case <-turn:
		return true
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(l.waiting, turn); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
		return false
	}
	t.passOn(of, l) // the turn came at the same moment
	return false
}

// End gives the turn to the next in line.
func (t *Turns) End(of Of) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.passOn(of, t.mu.lines[of])
}

// passOn gives a turn that is free to the next in line. With mu.
func (t *Turns) passOn(of Of, l *line) {
	if len(l.waiting) > 0 {
		close(l.waiting[0])
		l.waiting = l.waiting[1:]
		return
	}
	if l.asking--; l.asking == 0 {
		delete(t.mu.lines, of)
	}
}

// Waiting is how many pulls are in line.
func (t *Turns) Waiting() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.mu.lines {
		n += len(l.waiting)
	}
	return n
}
