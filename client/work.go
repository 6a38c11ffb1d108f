package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/columbamq/columba/core"
)

// Handler does one task. If it returns nil, Work acks the message. Retry and Reject choose another end. Any other
// error, and a panic, is a nack with its text as the reason and the group's backoff as the delay.
//
// Its context ends with a *LockLostError as its cause when the lock of the message is lost: another consumer may have
// the message from then on. When Work's grace is over, the cause is an error with the code draining (it matches
// ErrDraining). A lost connection does not end the context: the result of the handler is still sent.
type Handler func(ctx context.Context, d *Delivery) error

// Work consumes a group with h until ctx ends or the group is deleted; while the group or its queue is disabled it
// waits. Work extends the lock of each message for as long as its handler runs, so a handler that hangs keeps its
// message: give it a timeout of its own. When ctx ends, Work takes no more messages, waits for the handlers that run
// (see Grace), releases the rest and returns nil.
func (c *Client) Work(ctx context.Context, queue, group string, h Handler, opts ...WorkOption) error {
	o := workOptions{concurrency: 1, grace: 30 * time.Second}
	for _, opt := range opts {
		opt.applyWork(&o)
	}
	if h == nil {
		return core.Errorf(core.CodeBadArgument, "the handler is nil")
	}
	if o.concurrency < 1 {
		return core.Errorf(core.CodeBadArgument, "concurrency %d is not 1 or more", o.concurrency)
	}
	if o.consumer.prefetch <= 0 {
		o.consumer.prefetch = max(16, 4*o.concurrency)
	}
	w := &work{handler: h, workers: make([]worker, o.concurrency)}
	o.consumer.watch = w
	con, err := c.consumer(ctx, queue, group, o.consumer)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	w.con = con
	err = w.run(ctx, o.grace)
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	return errors.Join(err, con.Close(end))
}

// Retry is the error of a handler whose message is to be delivered again after the given time (0 to 12 h; other values
// are moved into that range). The attempt counts as failed.
func Retry(after time.Duration) error { return retryError{after} }

type retryError struct{ after time.Duration }

func (e retryError) Error() string { return fmt.Sprintf("retry after %s", e.after) }

// Reject is the error of a handler whose message is to be exhausted at once: it becomes a dead letter, or is dropped or
// blocked as the group says.
func Reject(reason string) error { return rejectError{reason} }

type rejectError struct{ reason string }

func (e rejectError) Error() string { return e.reason }

// work is the run of a Work.
type work struct {
	con     *Consumer
	handler Handler
	workers []worker
}

// worker runs one handler at a time.
type worker struct {
	current atomic.Pointer[task]
}

// task is a handler under way.
type task struct {
	d      *Delivery
	cancel context.CancelCauseFunc
}

// lockWatch is told what became of locks that were to be extended.
type lockWatch interface {
	lost(at core.Receipt, attempt int, why error)
	extended(at core.Receipt, attempt int, until int64)
	notExtended(at core.Receipt, attempt int)
}

// LockLostError is why a handler's context ended: the lock of its message is lost, and another consumer may handle the
// message. Err says why: ErrStale when the lock timed out or a seek moved the group, ErrNotFound when the group was
// deleted.
type LockLostError struct {
	Receipt core.Receipt
	Attempt int
	Err     error
}

func (e *LockLostError) Error() string {
	return fmt.Sprintf("the lock of message %s, attempt %d, is lost; another consumer may handle it: %v", e.Receipt, e.Attempt, e.Err)
}

// Unwrap returns Err.
func (e *LockLostError) Unwrap() error { return e.Err }

// lose ends the task's context.
func (t *task) lose(why error) {
	t.cancel(&LockLostError{Receipt: t.d.Receipt, Attempt: t.d.Attempt, Err: why})
}

// task is the one of a delivery; nil: it is over.
func (w *work) task(at core.Receipt, attempt int) *task {
	for i := range w.workers {
		if t := w.workers[i].current.Load(); t != nil && t.d.Receipt == at && t.d.Attempt == attempt {
			return t
		}
	}
	return nil
}

// lost implements lockWatch. An extension whose outcome is not known is tried again.
func (w *work) lost(at core.Receipt, attempt int, why error) {
	if t := w.task(at, attempt); t != nil && !t.d.settled.Load() && core.CodeOf(why).Class() == core.ClassFatal {
		t.lose(why)
	}
}

// extended implements lockWatch.
func (w *work) extended(at core.Receipt, attempt int, until int64) {
	if t := w.task(at, attempt); t != nil {
		t.d.extended(until)
	}
}

// notExtended implements lockWatch.
func (w *work) notExtended(at core.Receipt, attempt int) {
	if t := w.task(at, attempt); t != nil {
		t.d.notExtended()
	}
}

func (w *work) run(ctx context.Context, grace time.Duration) error {
	handling, abort := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abort(nil)
	var wg, helpers sync.WaitGroup
	errs := make([]error, len(w.workers))
	for i := range w.workers {
		wg.Go(func() { errs[i] = w.work(ctx, handling, &w.workers[i]) })
	}
	idle := make(chan struct{})
	helpers.Go(func() { w.keepLocked(idle) })
	helpers.Go(func() {
		if !waitFor(ctx.Done(), idle) {
			return
		}
		over, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		if waitFor(over.Done(), idle) {
			abort(core.Errorf(core.CodeDraining, "the time for the task is over"))
		}
	})
	wg.Wait()
	close(idle)
	helpers.Wait()
	return errs[0]
}

// work takes deliveries until there are no more.
func (w *work) work(ctx, handling context.Context, me *worker) error {
	for d, err := range w.con.Deliveries(ctx) {
		if errors.Is(err, ErrDisabled) { // for now
			continue
		}
		if err != nil {
			return err
		}
		hctx, cancel := context.WithCancelCause(handling)
		me.current.Store(&task{d: d, cancel: cancel})
		err := w.handle(hctx, d)
		me.current.Store(nil)
		cancel(nil)
		if err != nil {
			w.log().Debug("handler failed", "id", d.ID, "receipt", d.Receipt, "attempt", d.Attempt, "err", err)
		}
		if err := settleBy(d, err); err != nil && !errors.Is(err, ErrStale) {
			w.log().Warn("settle", "receipt", d.Receipt, "err", err)
		}
	}
	return nil
}

// handle turns a panic into an error, and leaves its stack in the log: the message carries only the text.
func (w *work) handle(ctx context.Context, d *Delivery) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			w.log().Error("handler panicked", "id", d.ID, "receipt", d.Receipt, "attempt", d.Attempt, "err", err, "stack", string(debug.Stack()))
		}
	}()
	return w.handler(ctx, d)
}

func (w *work) log() *slog.Logger {
	return w.con.c.opts.log.With("queue", w.con.queue, "group", w.con.group)
}

// settleBy settles a delivery by its handler's error; one that the handler has settled itself stays as it is.
func settleBy(d *Delivery, err error) error {
	if d.settled.Load() {
		return nil
	}
	var retry retryError
	var reject rejectError
	switch {
	case err == nil:
		return d.Ack()
	case errors.As(err, &reject):
		return d.Reject(err.Error())
	case errors.As(err, &retry):
		return d.Nack(After(min(max(retry.after, 0), core.MaxNackDelay)), Reason(err.Error()))
	}
	return d.Nack(Reason(err.Error()))
}

// keepLocked extends the locks of the tasks under way between a quarter and a half of the lock timeout, until idle is
// closed. It ends the contexts of tasks whose lock has ended.
func (w *work) keepLocked(idle <-chan struct{}) {
	ended := w.con.inbox.ended
	for {
		lock := w.con.LockTimeout()
		// It may become as short as it can meanwhile, and some tasks hold a shorter one that was told before.
		pause := min(max(lock/4, 50*time.Millisecond), core.MinLockTimeout/4)
		if lock <= 0 {
			pause = time.Second
		}
		timer := time.NewTimer(pause)
		select {
		case <-idle:
			timer.Stop()
			return
		case <-timer.C:
		case <-ended:
			timer.Stop()
			ended = nil
			if err := w.con.inbox.err(); core.CodeOf(err) == core.CodeNotFound {
				for i := range w.workers {
					if t := w.workers[i].current.Load(); t != nil {
						t.lose(err)
					}
				}
			}
			continue
		}
		if lock <= 0 { // not known yet, or delivered at most once: there is none
			continue
		}
		now := w.con.now()
		for i := range w.workers {
			if t := w.workers[i].current.Load(); t != nil && !t.d.settled.Load() {
				t.keepLocked(lock, now)
			}
		}
	}
}

func (t *task) keepLocked(lock time.Duration, now int64) {
	until, sure := t.d.lockEnds()
	switch {
	case now >= sure:
		t.lose(core.Errorf(core.CodeStale, "the lock timed out: no host has confirmed that it was extended"))
	case until-now <= int64(lock-lock/4):
		if err := t.d.Extend(lock); err != nil && !t.d.settled.Load() {
			t.lose(err)
		}
	}
}

// waitFor reports whether c was first.
func waitFor(c, other <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-other:
		return false
	}
}
