package storehost

import (
	"context"
	"errors"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/telemetry"
	"github.com/columbamq/columba/storehost/extentlog"
)

// How a log that has failed is opened anew.
const (
	reopenFirst = 250 * time.Millisecond // before the first try; then twice the time before, up to …
	reopenMost  = 30 * time.Second
	reopenCalm  = 10 * time.Minute // without a failure, after which the first pause is short again
	// maxLeft is how many failed logs may stay in memory, about 100 MiB each, before the process ends instead.
	maxLeft = 3
	// probePatience is how long a probe may take: longer than any call, so that a disk which is only slow ends no process.
	probePatience = 30 * time.Second
)

// reopener opens a failed log anew, as a new run of the store: what was open is weak then, and no append session goes
// on. It belongs to Run.
type reopener struct {
	h    *Host
	wait time.Duration // before the next try
	last time.Time     // when the log was opened last
	left int           // logs that stay in memory
}

// reopen returns once the store has a log that works, or ctx ends. Until the disk takes a write again, the failed log
// goes on serving reads. An error ends the process: the directory cannot be opened again in this one.
func (r *reopener) reopen(ctx context.Context, failed extentlog.Log) error {
	h := r.h
	h.log.Error("the store's log failed; the store refuses writes, and opens the log anew as soon as the disk accepts a write", "dir", h.cfg.Dir)
	h.fail(core.Errorf(core.CodeUnavailable, "the store's log failed and is opened anew when the disk takes writes again; look at the disk"))
	if time.Since(r.last) > reopenCalm {
		r.wait = reopenFirst
	}
	for warned := ""; r.pause(ctx); {
		log, err := r.try(ctx, failed)
		switch {
		case errors.Is(err, extentlog.ErrHangs), r.left > maxLeft:
			return core.Errorf(core.CodeUnavailable, "the store's log in %s cannot be opened again by this process; restart it: %w", h.cfg.Dir, err)
		case err != nil && ctx.Err() == nil && err.Error() != warned:
			warned = err.Error()
			h.log.Warn("the store's log is not opened anew yet", "dir", h.cfg.Dir, telemetry.KeyErr, warned)
		}
		if log != nil {
			r.last = time.Now()
			h.attach(log)
			h.log.Warn("the store's log is opened anew, as a new run", "dir", h.cfg.Dir, "run", log.Identity().Run)
			return nil
		}
		if h.current() == nil {
			failed = nil
		}
	}
	return nil
}

// pause waits before a try; false when ctx ends.
func (r *reopener) pause(ctx context.Context) bool {
	timer := time.NewTimer(r.wait)
	defer timer.Stop()
	r.wait = min(2*r.wait, reopenMost)
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// try closes the failed log, unless that is done, and opens another one.
func (r *reopener) try(ctx context.Context, failed extentlog.Log) (extentlog.Log, error) {
	h := r.h
	if failed != nil {
		if err := probe(ctx, failed); err != nil {
			return nil, err
		}
		h.detach()
		if err := r.counted(failed.Close()); err != nil {
			return nil, err
		}
	}
	log, err := h.deps.open(h.cfg.Dir, extentlog.Options{Store: h.deps.Self, Log: h.log, ScrubRate: h.cfg.ScrubRate, Tables: h.deps.Tables})
	if err != nil {
		return nil, r.countedOpen(err)
	}
	return log, nil
}

// probe asks whether the disk takes a write. ErrHangs when it does not answer; the probe's goroutine stays until it
// does.
func probe(ctx context.Context, failed extentlog.Log) error {
	probed := make(chan error, 1)
	go func() { probed <- failed.Probe() }()
	timer := time.NewTimer(probePatience)
	defer timer.Stop()
	select {
	case err := <-probed:
		return err
	case <-timer.C:
		return core.Errorf(core.CodeUnavailable, "a probe got no answer within %s: %w", probePatience, extentlog.ErrHangs)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// counted counts a log that stays in memory, which is no reason not to go on.
func (r *reopener) counted(err error) error {
	if errors.Is(err, extentlog.ErrLeft) {
		if r.left++; r.left <= maxLeft {
			return nil
		}
	}
	return err
}

func (r *reopener) countedOpen(err error) error {
	if errors.Is(err, extentlog.ErrLeft) {
		r.left++
	}
	return err
}

// fail has everybody see that the log has failed.
func (h *Host) fail(why error) {
	h.metrics.logFailures.Inc()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.failed = why
}

// detach ends all connections, which use the log, and gives calls nothing.
func (h *Host) detach() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.log = nil
	h.mu.endLinks(core.Errorf(core.CodeUnavailable, "the store opens its log anew; try again"))
}

// attach gives everybody the log.
func (h *Host) attach(log extentlog.Log) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.log, h.mu.failed = log, nil
	h.mu.links, h.mu.endLinks = context.WithCancelCause(h.ctx)
}

// current is the log; nil before Start and while it is opened anew.
func (h *Host) current() extentlog.Log {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.log
}

// Ready is why the store takes nothing new although it runs; nil otherwise.
func (h *Host) Ready() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.failed
}
