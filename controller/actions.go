package controller

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// actions are what this controller decides and tells by what it is responsible for. A hand-over waits until those end
// that are under way, which may call the metadata; others wait for the hand-over. It is safe for concurrent use.
type actions struct{ places *semaphore.Weighted }

// allActions is more than are ever under way at once.
const allActions = 1 << 40

func newActions() actions { return actions{semaphore.NewWeighted(allActions)} }

// begin one, which ends with a call of end. One must not begin within another.
func (a actions) begin() (end func()) { return a.take(1) }

// stop waits until none is under way; none begins until a call of goOn.
func (a actions) stop() (goOn func()) { return a.take(allActions) }

func (a actions) take(places int64) (giveBack func()) {
	_ = a.places.Acquire(context.Background(), places) // it fails with its context only
	return func() { a.places.Release(places) }
}
