package inputhost

import (
	"context"
	"sync"
	"time"

	"github.com/columbamq/columba/inputhost/writer"
)

// tellEvery is the shortest time between two rounds of telling stores what is committed. The first after a quiet time
// comes at once.
const tellEvery = 2 * time.Millisecond

// teller tells the stores of many extents how far they are committed, in rounds, so that a round's frames leave
// together.
type teller struct {
	wake chan struct{}
	mu   struct {
		sync.Mutex
		writers []*writer.Writer // each once
	}
}

func newTeller() *teller { return &teller{wake: make(chan struct{}, 1)} }

// add has w told in the next round.
func (t *teller) add(w *writer.Writer) {
	t.mu.Lock()
	t.mu.writers = append(t.mu.writers, w)
	first := len(t.mu.writers) == 1
	t.mu.Unlock()
	if first {
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

// run tells until ctx ends.
func (t *teller) run(ctx context.Context) {
	var round []*writer.Writer
	for {
		select {
		case <-t.wake:
		case <-ctx.Done():
			return
		}
		t.mu.Lock()
		round, t.mu.writers = t.mu.writers, round[:0]
		t.mu.Unlock()
		for _, w := range round {
			w.Tell()
		}
		clear(round)
		select {
		case <-time.After(tellEvery):
		case <-ctx.Done():
			return
		}
	}
}
