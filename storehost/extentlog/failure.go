package extentlog

import (
	"time"

	"github.com/columbamq/columba/core"
)

const (
	// maxFailures is how often in a row a flush or compaction may fail before the store refuses all: a full or broken disk makes
	// Pebble retry for ever.
	maxFailures = 10
	// closePatience is how long Close waits for a commitLoop that may wait in the database for ever.
	closePatience = 5 * time.Second
)

// fail fences the store against itself. It may be called under Pebble's locks.
func (e *Engine) fail(err error) error {
	failed := core.Errorf(core.CodeUnavailable, "the store's log failed to write and takes no more: look at the disk and restart it: %w", err)
	if e.broken.CompareAndSwap(nil, failed) {
		e.log.Error("extent log failed", "err", err.Error()) // without Pebble's stack
		close(e.failed)
	}
	return failed
}

// refusing is why nothing is written.
func (e *Engine) refusing() error {
	if err := e.broken.Load(); err != nil {
		return err
	}
	if err := e.readOnly.Load(); err != nil {
		return err
	}
	return nil
}

// ended is why the queue takes nothing.
func (e *Engine) ended() error {
	if err := e.refusing(); err != nil {
		return err
	}
	return errClosed()
}

// giveUp answers everything that waits once the log has failed: commitLoop may wait for room in the database that never comes, because
// nothing can be flushed.
func (e *Engine) giveUp() {
	select {
	case <-e.settled:
		return
	case <-e.failed:
	}
	why := e.refusing()
	if r := e.applying.Swap(nil); r != nil {
		for i := range r.requests {
			if r.errs[i] == nil {
				r.errs[i] = why
			}
			r.requests[i].answered(r.errs[i])
		}
		e.queue.done(r.requests)
	}
	waiting := e.queue.abandon()
	for i := range waiting {
		waiting[i].answered(why)
	}
	e.queue.done(waiting)
}

// join waits for all goroutines and readers; false when the log has failed and they do not end.
func (e *Engine) join() bool {
	joined := make(chan struct{})
	go func() {
		defer close(joined)
		e.tasks.Wait()
		e.mu.readers.Wait()
	}()
	select {
	case <-joined:
		return true
	case <-e.failed:
	}
	timer := time.NewTimer(e.patience)
	defer timer.Stop()
	select {
	case <-joined:
		return true
	case <-timer.C:
		e.log.Error("extent log does not close", "dir", e.dir)
		return false
	}
}

// backgroundError counts failures of flushes and compactions.
func (e *Engine) backgroundError(err error) {
	n := e.failures.Add(1)
	if n == 1 {
		e.log.Error("storage background error", "err", err.Error())
	}
	if n >= maxFailures {
		e.fail(err)
	}
}
