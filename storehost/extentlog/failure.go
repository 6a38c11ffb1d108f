package extentlog

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
)

const (
	// maxFailures is how often in a row a flush or compaction may fail before the store refuses all: a full or broken
	// disk makes Pebble retry for ever.
	maxFailures = 10
	// closePatience is how long Close waits for a commitLoop that may wait in the database for ever.
	closePatience = 5 * time.Second
	// closeMost is how long Close waits in a log that works: for what is under way, and then for the database. A disk
	// that has not answered by then hangs, and the log fails.
	closeMost = 20 * time.Second
	// flushPatience is how long Close waits for the last rows to be in tables.
	flushPatience = 5 * time.Second
)

// Close returns one of these errors for a log that cannot be closed, because it has failed or its disk hangs.
var (
	// ErrLeft says that goroutines and memory of the log stay until the process ends. They change no file any more, and
	// the directory can be opened anew.
	ErrLeft = errors.New("what is left of the failed log stays in memory")
	// ErrHangs says that a write is under way that does not end: the directory must not be opened before the process
	// has ended.
	ErrHangs = errors.New("a write to the disk hangs")
)

// Failed implements Log.
func (e *Engine) Failed() <-chan struct{} { return e.failed }

// fail fences the store against itself. It may be called under Pebble's locks.
func (e *Engine) fail(err error) error {
	failed := core.Errorf(core.CodeUnavailable, "the store's log failed to write and takes no more until it is opened anew; look at the disk: %w", err)
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

// giveUp answers everything that waits once the log has failed: commitLoop may wait for room in the database that never
// comes, because nothing can be flushed.
func (e *Engine) giveUp() {
	select {
	case <-e.settled:
		return
	case <-e.failed:
	}
	why := e.refusing()
	for _, underway := range []*atomic.Pointer[round]{&e.applying, &e.syncing} {
		if r := underway.Swap(nil); r != nil {
			e.answer(r, why)
		}
	}
	waiting := e.queue.abandon()
	for i := range waiting {
		waiting[i].answered(why)
	}
	e.queue.done(waiting)
}

// answer answers all requests of a round; those without an error of their own get err.
func (e *Engine) answer(r *round, err error) {
	for i := range r.requests {
		if r.errs[i] == nil {
			r.errs[i] = err
		}
		r.requests[i].answered(r.errs[i])
	}
	e.queue.done(r.requests)
}

// join waits for all goroutines, readers and guarded calls, so that nobody is in the database any more; false when the
// log has failed and they do not end. The log fails when they have not ended after closeMost.
func (e *Engine) join() bool {
	joined := make(chan struct{})
	go func() {
		defer close(joined)
		e.tasks.Wait()
		e.mu.readers.Wait()
		e.calls.Wait()
	}()
	most := time.NewTimer(closeMost)
	defer most.Stop()
	select {
	case <-joined:
		return true
	case <-e.failed:
	case <-most.C:
		e.fail(errCloseHangs())
	}
	timer := time.NewTimer(e.patience)
	defer timer.Stop()
	select {
	case <-joined:
		return true
	case <-timer.C:
		return false
	}
}

// leave gives up a log that has failed, so that another one can be opened in its directory: first its database is cut
// off from its files, then it is closed, if it can be.
func (e *Engine) leave(joined bool) error {
	if !e.gate.Sever(e.patience) {
		e.log.Error("extent log does not close: a write to the disk hangs", "dir", e.dir)
		return core.Errorf(core.CodeUnavailable, "close the log in %s: %w", e.dir, ErrHangs)
	}
	var why error
	if !joined || e.db != nil && !e.closeFailed() {
		e.log.Error("extent log does not close", "dir", e.dir)
		why = core.Errorf(core.CodeUnavailable, "close the log in %s: %w", e.dir, ErrLeft)
	}
	if err := e.lock.Close(); err != nil {
		return core.Errorf(core.CodeUnavailable, "unlock %s: %w", e.dir, err)
	}
	e.lock = nil
	return why
}

// closeWorking closes the database of a log that works. The log fails when it does not close in time.
func (e *Engine) closeWorking() error {
	ended, err := callWithin(closeMost, func() error {
		e.flushLast()
		return e.closeDatabase()
	})
	if !ended {
		e.fail(errCloseHangs())
		return e.leave(false)
	}
	e.db = nil
	return errors.Join(err, e.release())
}

// flushLast has the rows in tables, so that the next start has none to apply. It is no loss if the disk does not let
// it.
func (e *Engine) flushLast() {
	if e.readOnly.Load() != nil {
		return
	}
	flushed, err := e.db.AsyncFlush()
	if err != nil {
		return
	}
	timer := time.NewTimer(flushPatience)
	defer timer.Stop()
	select {
	case <-flushed:
	case <-timer.C:
	case <-e.failed:
	}
}

// closeFailed closes the database of a log that has failed; false when it does not close in time.
func (e *Engine) closeFailed() bool {
	ended, err := callWithin(e.patience, func() (err error) {
		defer func() {
			if p := recover(); p != nil { // it counts on what a failure left undone
				err = core.Errorf(core.CodeInternal, "close a database that has failed: %v", p)
			}
		}()
		_ = e.closeDatabase() // it failed, and is cut off
		return nil
	})
	if !ended || err != nil {
		return false
	}
	e.db = nil
	return true
}

// callWithin calls f and waits for it for that long at most. When f has not ended by then, it goes on without its
// caller.
func callWithin(patience time.Duration, f func() error) (ended bool, err error) {
	done := make(chan error, 1)
	go func() { done <- f() }()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-done:
		return true, err
	case <-timer.C:
		return false, nil
	}
}

func errCloseHangs() error {
	return core.Errorf(core.CodeUnavailable, "what was under way as the log was closed has not ended within %s", closeMost)
}

// probeSize is what Probe writes.
const probeSize = 4 << 10

// Probe implements Log.
func (e *Engine) Probe() error {
	name := e.fs.PathJoin(e.dir, "probe")
	f, err := e.fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return openError(e.dir, err)
	}
	_, err = f.Write(make([]byte, probeSize))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close(), e.fs.Remove(name)); err != nil {
		return openError(e.dir, err)
	}
	return nil
}

// guarded calls the database, and does not wait for it once the log has failed. The caller is one of those that join
// waits for.
func (e *Engine) guarded(call func() error) error {
	done := make(chan error, 1)
	e.calls.Go(func() { done <- call() })
	select {
	case err := <-done:
		return err
	case <-e.failed:
		return e.refusing()
	}
}

// backgroundError counts failures of flushes and compactions. A compaction that a removal cancelled is none: it is done
// again.
func (e *Engine) backgroundError(err error) {
	if errors.Is(err, pebble.ErrCancelledCompaction) {
		return
	}
	n := e.failures.Add(1)
	if n == 1 {
		e.log.Error("storage background error", "err", err.Error())
	}
	if n >= maxFailures {
		e.fail(err)
	}
}
