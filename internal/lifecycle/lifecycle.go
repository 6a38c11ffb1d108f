// Package lifecycle owns the order in which the parts of a process start, run and stop.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Part is something that lives as long as the process. Its methods are called by one goroutine, but for Run, which has
// one of its own; each is called at most once, Stop only after Start has succeeded.
type Part interface {
	// Name is for logs and errors.
	Name() string
	// Start acquires what the part needs; when it fails, nothing is left behind.
	Start(ctx context.Context) error
	// Run blocks until ctx ends, then finishes what is under way and returns nil.
	Run(ctx context.Context) error
	// Stop releases what Start acquired. Run has returned, or was given up after its time.
	Stop(ctx context.Context) error
}

// Options of Run. Zero durations take the defaults.
type Options struct {
	Log          *slog.Logger
	StartTimeout time.Duration // of each Start; 30 s
	DrainTimeout time.Duration // of each part's drain, from the end of Run's context to its return; 10 s
	StopTimeout  time.Duration // of each Stop; 5 s
	// Ready is called when all parts have started and none has failed so far.
	Ready func()
	// Draining is called when the first part is about to be stopped, with the failure that stops the process; nil when ctx
	// ended. A result above 0 replaces DrainTimeout and StopTimeout. A part whose drain takes longer is then given up
	// without an error: the failure keeps it from finishing.
	Draining func(failure error) time.Duration
}

// Run starts parts from first to last, each running as soon as it has started, so that a later one may depend on it. It
// returns after all have stopped, from last to first, each drained before the one it depends on:
//
//	starting ──all started──▶ ready ──ctx ends, or a part's Run returns──▶ draining ──all stopped──▶ returned
//	    └──a Start fails, ctx ends, or a part's Run returns──────────────────▲
//
// The error joins what made the process stop and what went wrong while it did; it is nil after ctx ended and all went
// well.
func Run(ctx context.Context, parts []Part, o Options) error {
	o = o.withDefaults()
	s := &sequence{o: o, ended: make(chan *running, len(parts))}
	err := s.start(ctx, parts)
	if err == nil {
		o.Ready()
		err = s.wait(ctx)
	}
	if ctx.Err() != nil && s.culprit == nil {
		err = nil // what a stop that was asked for breaks off is no failure
	}
	if limit := o.Draining(err); limit > 0 {
		s.hasty, s.o.DrainTimeout, s.o.StopTimeout = true, limit, limit
	}
	return errors.Join(err, s.stop(context.WithoutCancel(ctx)))
}

func (o Options) withDefaults() Options {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&o.StartTimeout, 30*time.Second)
	def(&o.DrainTimeout, 10*time.Second)
	def(&o.StopTimeout, 5*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Ready == nil {
		o.Ready = func() {}
	}
	if o.Draining == nil {
		o.Draining = func(error) time.Duration { return 0 }
	}
	return o
}

// sequence is one Run: the parts that have started so far.
type sequence struct {
	o       Options
	started []*running
	ended   chan *running // each part once, when its Run returns
	culprit *running      // the one that ended before it was told to, nil while there is none
	hasty   bool          // parts that do not drain in time are given up without an error
}

// running is a started part.
type running struct {
	part   Part
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when Run has returned, with err set
	err    error
}

var errStopping = errors.New("the process is stopping")

func (s *sequence) start(ctx context.Context, parts []Part) error {
	for _, p := range parts {
		select {
		case r := <-s.ended:
			return s.blame(r)
		case <-ctx.Done():
			return errStopping
		default:
		}
		began := time.Now()
		startCtx, cancel := context.WithTimeoutCause(ctx, s.o.StartTimeout, fmt.Errorf("not started within %s", s.o.StartTimeout))
		err := p.Start(startCtx)
		cancel()
		if err != nil {
			return fmt.Errorf("start %s: %w", p.Name(), err)
		}
		s.o.Log.Debug("part started", "part", p.Name(), "took", time.Since(began))
		s.run(ctx, p)
	}
	return nil
}

// run gives the part a context that outlives ctx: it ends when its turn to stop has come.
func (s *sequence) run(ctx context.Context, p Part) {
	runCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	r := &running{part: p, cancel: cancel, done: make(chan struct{})}
	s.started = append(s.started, r)
	go func() { // joined by stop, or given up there with an error
		r.err = p.Run(runCtx)
		close(r.done)
		s.ended <- r // never blocks: one place for each part
	}()
}

func (s *sequence) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case r := <-s.ended:
		return s.blame(r)
	}
}

// blame notes the part that ended before it was told to, and says why it did.
func (s *sequence) blame(r *running) error {
	s.culprit = r
	r.cancel(errStopping)
	if r.err == nil {
		return fmt.Errorf("run %s: it ended by itself", r.part.Name())
	}
	return fmt.Errorf("run %s: %w", r.part.Name(), r.err)
}

func (s *sequence) stop(ctx context.Context) error {
	var errs []error
	for i := len(s.started) - 1; i >= 0; i-- {
		r := s.started[i]
		began := time.Now()
		if r != s.culprit {
			errs = append(errs, s.drain(r))
		}
		stopCtx, cancel := context.WithTimeout(ctx, s.o.StopTimeout)
		if err := r.part.Stop(stopCtx); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", r.part.Name(), err))
		}
		cancel()
		s.o.Log.Debug("part stopped", "part", r.part.Name(), "took", time.Since(began))
	}
	return errors.Join(errs...)
}

// drain ends a part's context and waits for its Run.
func (s *sequence) drain(r *running) error {
	r.cancel(errStopping)
	timeout := time.NewTimer(s.o.DrainTimeout)
	defer timeout.Stop()
	select {
	case <-r.done:
		if r.err != nil && !errors.Is(r.err, context.Canceled) {
			return fmt.Errorf("drain %s: %w", r.part.Name(), r.err)
		}
		return nil
	case <-timeout.C:
		if s.hasty {
			s.o.Log.Warn("a part is given up: it cannot finish after the failure", "part", r.part.Name(), "waited", s.o.DrainTimeout)
			return nil
		}
		return fmt.Errorf("drain %s: not done within %s", r.part.Name(), s.o.DrainTimeout)
	}
}
