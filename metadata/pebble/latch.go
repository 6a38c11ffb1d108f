package pebble

import (
	"context"
	"slices"
	"sync"

	"github.com/columbamq/columba/core"
)

// latches serialises the changes of one row. They are held over the write and its fsync, so whoever takes one next
// decides on what is durable; waiting ends with the context.
type latches struct {
	mu   sync.Mutex
	held map[string]chan struct{}
}

// acquire takes the latches of all rows, or none. Rows are taken in order, so that two calls never wait for each other.
func (l *latches) acquire(ctx context.Context, rows []string) (release func(), err error) {
	slices.Sort(rows)
	rows = slices.Compact(rows)
	for i, row := range rows {
		if err := l.acquireOne(ctx, row); err != nil {
			l.release(rows[:i])
			return nil, err
		}
	}
	return func() { l.release(rows) }, nil
}

func (l *latches) acquireOne(ctx context.Context, row string) error {
	for {
		l.mu.Lock()
		holder, held := l.held[row]
		if !held {
			l.held[row] = make(chan struct{})
		}
		l.mu.Unlock()
		if !held {
			return nil
		}
		select {
		case <-holder:
		case <-ctx.Done():
			return core.Errorf(core.CodeUnavailable, "metadata row is busy: %w", context.Cause(ctx))
		}
	}
}

func (l *latches) release(rows []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, row := range rows {
		close(l.held[row])
		delete(l.held, row)
	}
}
