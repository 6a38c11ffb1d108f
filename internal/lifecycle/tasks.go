package lifecycle

import (
	"context"
	"sync"
)

// Tasks are the goroutines of one owner. All live under one context and are joined by Stop. The methods may be called
// by several goroutines, Go and Enter also from a task.
type Tasks struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
	mu     struct {
		sync.Mutex
		stopped bool
	}
}

// NewTasks has no task yet.
func NewTasks() *Tasks {
	t := &Tasks{}
	t.ctx, t.cancel = context.WithCancelCause(context.Background())
	return t
}

// Context of all tasks; it ends with Stop.
func (t *Tasks) Context() context.Context { return t.ctx }

// Go starts f unless Stop was called, and says whether it did.
func (t *Tasks) Go(f func(ctx context.Context)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.stopped {
		return false
	}
	t.wg.Go(func() { f(t.ctx) })
	return true
}

// Enter makes the calling goroutine a task until it calls leave; false when Stop was called. Its work ends with
// Context.
func (t *Tasks) Enter() (leave func(), ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.stopped {
		return nil, false
	}
	t.wg.Add(1)
	return t.wg.Done, true
}

// Stop ends the context with the cause and waits for all tasks. Several calls are as good as one.
func (t *Tasks) Stop(cause error) {
	t.mu.Lock()
	t.mu.stopped = true
	t.mu.Unlock()
	t.cancel(cause)
	t.wg.Wait()
}
