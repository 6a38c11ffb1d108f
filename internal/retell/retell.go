// Package retell tells another host of something again that it could not be told at once.
package retell

import (
	"context"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// Every is the period of rounds.
	Every  = 5 * time.Second
	atOnce = 16
	// most bounds what is remembered. The other host has to find out by itself what comes on top.
	most = 10_000
)

// Teller remembers what has yet to be told. Safe for concurrent use; one goroutine uses Round.
type Teller[K comparable] struct {
	tell   func(ctx context.Context, what K) bool
	during time.Duration
	now    func() time.Time
	mu     struct {
		sync.Mutex
		since map[K]time.Time
	}
}

// New tells by a function that reports whether it needs no other try, for so long after Add at most.
func New[K comparable](tell func(ctx context.Context, what K) bool, during time.Duration, now func() time.Time) *Teller[K] {
	t := &Teller[K]{tell: tell, during: during, now: now}
	t.mu.since = make(map[K]time.Time)
	return t
}

// Add has something told by the next round, and again until it is.
func (t *Teller[K]) Add(what K) { t.add(what, t.now()) }

func (t *Teller[K]) add(what K, since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was, known := t.mu.since[what]
	switch {
	case !known && len(t.mu.since) >= most:
	case was.Before(since):
		t.mu.since[what] = since
	}
}

// Round tells what there is. The next one tells what is added meanwhile, also if it is told now: the change may be
// newer.
func (t *Teller[K]) Round(ctx context.Context) {
	t.mu.Lock()
	all := maps.Clone(t.mu.since)
	clear(t.mu.since)
	t.mu.Unlock()
	maps.DeleteFunc(all, func(_ K, since time.Time) bool { return t.now().Sub(since) > t.during })
	var g errgroup.Group
	g.SetLimit(atOnce)
	for what, since := range all {
		g.Go(func() error {
			if !t.tell(ctx, what) {
				t.add(what, since)
			}
			return nil
		})
	}
	g.Wait() // no function fails
}
