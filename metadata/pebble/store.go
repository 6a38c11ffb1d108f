// Package pebble owns the embedded metadata.Store: one Pebble directory of one process, every change fsynced before it
// is answered.
package pebble

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	engine "github.com/cockroachdb/pebble/v2"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// maxCalls bounds the calls under way; others wait for their turn until their deadline.
const maxCalls = 256

// Store keeps rows in a Pebble directory. Safe for concurrent use; the changes of concurrent callers share fsyncs.
//
// A call runs in a goroutine of its own, because the engine knows no deadline: when the disk hangs the caller gets its
// answer in time, and the call goes on until the disk answers.
type Store struct {
	db       *engine.DB
	dir      string
	lock     *engine.Lock
	latches  latches
	notifier metadata.Notifier
	versions metadata.Versions

	calls   chan struct{} // a slot for each call under way
	writing atomic.Int64  // changes that readers may see and that may not be durable yet
	failed  atomic.Pointer[core.Error]
	broken  chan struct{} // closed when it has failed
	live    atomic.Bool   // the database is open, and not being closed

	ctx  context.Context // ends with Close
	stop context.CancelCauseFunc
	work sync.WaitGroup // calls and the sweeper

	life struct { // guards work.Add against Close's Wait
		sync.Mutex
		closed bool
	}
}

var _ metadata.Store = (*Store)(nil)

func newStore(dir string, lock *engine.Lock) *Store {
	s := &Store{dir: dir, lock: lock, calls: make(chan struct{}, maxCalls), broken: make(chan struct{})}
	s.latches.held = map[string]chan struct{}{}
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	return s
}

var errClosed = core.Errorf(core.CodeUnavailable, "metadata store is closed")

// Close waits for the calls under way, which end, and closes the directory. After a failure of the disk it leaves the
// directory locked until the process ends.
func (s *Store) Close() error {
	s.life.Lock()
	was := s.life.closed
	s.life.closed = true
	s.life.Unlock()
	if was {
		return nil
	}
	s.stop(errClosed)
	if err := s.Failed(); err != nil {
		return err
	}
	if !s.join() {
		return s.Failed()
	}
	s.live.Store(false)
	if err := errors.Join(s.db.Close(), s.lock.Close()); err != nil {
		return core.Errorf(core.CodeInternal, "close metadata in %s: %w", s.dir, err)
	}
	return nil
}

// join waits for the calls under way; false once the store has failed, for then some of them may never end.
func (s *Store) join() bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.work.Wait()
	}()
	select {
	case <-done:
		return true
	case <-s.broken:
		return false
	}
}

// Failed is why the store refuses everything, nil while it works. A failed store works again after a restart of the
// process.
func (s *Store) Failed() error {
	if err := s.failed.Load(); err != nil {
		return err
	}
	return nil
}

func (s *Store) fail(text string) {
	code := core.CodeUnavailable
	if strings.Contains(text, syscall.ENOSPC.Error()) || strings.Contains(text, syscall.EDQUOT.Error()) {
		code = core.CodeNoSpace
	}
	if s.failed.CompareAndSwap(nil, core.Errorf(code, "metadata in %s stopped: %s; repair the disk and restart the server", s.dir, text)) {
		close(s.broken)
	}
}

// logFailed is told errors of the database's logs; see walfs. A call that waits for ever then keeps its goroutine, and
// its caller leaves at the deadline.
func (s *Store) logFailed(err error) (inUse bool) {
	if !s.live.Load() {
		return false
	}
	s.fail(err.Error())
	return true
}

// Watch implements metadata.Store.
func (s *Store) Watch(ctx context.Context, t metadata.Table, partition string, changed func()) error {
	if err := metadata.CheckList(t, partition, "", 1); err != nil {
		return err
	}
	return s.notifier.Watch(ctx, s.ctx.Done(), t, partition, changed)
}

// call runs f in a goroutine and waits for it until ctx ends: late is the error's code then. before, if any, waits for
// what f needs, in the caller; what it returns is done after f.
func (s *Store) call(ctx context.Context, late core.Code, before func(context.Context) (func(), error), f func() error) error {
	ctx, cancel := metadata.Deadline(ctx)
	defer cancel()
	ready, cancelReady := context.WithCancelCause(ctx)
	defer cancelReady(nil)
	defer context.AfterFunc(s.ctx, func() { cancelReady(errClosed) })()
	if ready.Err() != nil {
		return unasked(ready)
	}
	select {
	case s.calls <- struct{}{}:
	case <-ready.Done():
		return unasked(ready)
	}
	after := func() {}
	if before != nil {
		var err error
		if after, err = before(ready); err != nil {
			<-s.calls
			return err
		}
	}
	done := make(chan error, 1)
	if err := s.start(func() { s.run(f, after, done) }); err != nil {
		after()
		<-s.calls
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return core.Errorf(late, "metadata in %s did not answer in time: %w", s.dir, context.Cause(ctx))
	}
}

func unasked(ctx context.Context) error {
	return core.Errorf(core.CodeUnavailable, "metadata was not asked: %w", context.Cause(ctx))
}

// start runs f in a goroutine that Close waits for.
func (s *Store) start(f func()) error {
	if err := s.Failed(); err != nil {
		return err
	}
	s.life.Lock()
	defer s.life.Unlock()
	if s.life.closed {
		return errClosed
	}
	s.work.Go(f)
	return nil
}

// run answers on done even when the engine ends the goroutine, see logger.
func (s *Store) run(f func() error, after func(), done chan<- error) {
	err := error(core.Errorf(core.CodeUnknown, "metadata in %s stopped during the call", s.dir))
	defer func() {
		after()
		<-s.calls
		done <- err // has room
	}()
	err = f()
}

// barrier returns when all that was readable before it is durable. A change whose sync failed stays readable and is not
// counted any more: the failure is noted before the count goes down, and looked at behind it.
func (s *Store) barrier() error {
	if s.writing.Load() > 0 {
		if err := s.db.LogData(nil, engine.Sync); err != nil {
			return s.diskError(err)
		}
	}
	return s.Failed()
}

func (s *Store) diskError(err error) error {
	if err == nil {
		return nil
	}
	if engine.IsCorruptionError(err) {
		return core.Errorf(core.CodeCorrupt, "metadata in %s is damaged; restore it from a copy: %w", s.dir, err)
	}
	return core.Errorf(core.CodeUnavailable, "metadata in %s: %w", s.dir, err)
}

// now is the store's clock for expiry.
func now() time.Time { return time.Now() }
