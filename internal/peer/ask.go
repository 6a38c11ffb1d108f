package peer

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/duty"
)

// Host is one that can be asked.
type Host struct {
	ID      core.HostID
	Address string
}

// Question is put to the controllers of a cluster until one answers. More than one may be asked, and may do what is
// asked: it must be safe to do twice.
type Question[R any] struct {
	Key      core.ID       // whose controller is asked first: see duty.Of
	Patience time.Duration // with a controller, before the next one is asked beside it
	// Elsewhere reports whether the next controller may do better than one that gave this error, which is of the
	// catalogue.
	Elsewhere func(error) bool
	Call      func(context.Context, columbav1connect.ControllerServiceClient) (R, error)
}

// Ask puts a question. The only controller is simply called. Of several, the one whose duty it is comes first. Each
// next one is asked as soon as those before it failed, or when none of them has answered for q.Patience. Silent
// controllers come last, and only if all others failed, or said that another one is responsible (CodeMoved). But one
// whose duty it would be is asked beside the others once in a while, so that it is heard when it is back.
//
// The first answer counts. Later ones only show that their controllers are not silent: calls under way go on for that
// until the deadline of ctx, which it should have. Errors are those of the calls, not yet of the catalogue: that of the
// controller that refused first, if one did.
func Ask[R any](ctx context.Context, p *Pool, controllers []Host, q Question[R]) (R, error) {
	switch len(controllers) {
	case 0:
		return *new(R), convert.RPCError(core.Errorf(core.CodeUnavailable, "no live host has the role controller; start one, or see `columba list hosts`"))
	case 1:
		return q.Call(ctx, p.Controller(controllers[0].Address))
	}
	beside, live, silent := p.turns(q.Key, controllers)
	a := asking[R]{p: p, q: q, answers: make(chan answer[R], len(controllers))}
	defer a.leave()
	for _, h := range beside {
		a.call(ctx, h, true)
	}
	return a.run(ctx, live, silent)
}

// turns are the controllers to ask one after another, silent ones last, and those to ask beside them. When all are
// silent, none counts as such.
func (p *Pool) turns(key core.ID, controllers []Host) (beside, live, silent []Host) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	t := duty.Of(key, controllers, func(h Host) core.HostID { return h.ID }, func(h Host) bool { return p.mu.watched.Silent(h.Address, now) })
	if len(t.Live) == 0 {
		return nil, t.Silent, nil
	}
	for i, h := range t.Silent {
		if i < t.Passed && p.mu.watched.Try(h.Address, now) {
			beside = append(beside, h)
		} else {
			silent = append(silent, h)
		}
	}
	return beside, t.Live, silent
}

// answer of a controller.
type answer[R any] struct {
	resp   R
	err    error
	said   bool // the controller's own answer
	beside bool // of one that nobody waits for
}

// asking is a question under way.
type asking[R any] struct {
	p       *Pool
	q       Question[R]
	answers chan answer[R] // has room for all
	pending int            // calls that are waited for
	follow  []func() bool  // ends that a call is cancelled with its caller
	refused bool           // a controller said no, and not that another one is responsible
	why     error          // of the first that failed, or refused
}

func (a *asking[R]) run(ctx context.Context, live, silent []Host) (none R, _ error) {
	next := func() bool {
		if len(live) == 0 && !a.refused {
			live, silent = silent, nil
		}
		if len(live) == 0 {
			return false
		}
		a.call(ctx, live[0], false)
		live = live[1:]
		return true
	}
	patience := time.NewTimer(a.q.Patience)
	defer patience.Stop()
	for a.pending > 0 || next() {
		select {
		case got := <-a.answers:
			if a.counts(got) {
				return got.resp, got.err
			}
			if !got.beside && next() {
				patience.Reset(a.q.Patience)
			}
		case <-patience.C:
			if !next() && a.refused {
				return none, a.why
			}
			patience.Reset(a.q.Patience)
		case <-ctx.Done():
			if a.why == nil {
				a.why = convert.RPCError(core.Errorf(core.CodeDeadline, "no controller answered: %w", context.Cause(ctx)))
			}
			return none, a.why
		}
	}
	return none, a.why
}

// counts reports whether an answer is the answer; else it keeps why not.
func (a *asking[R]) counts(got answer[R]) bool {
	if !got.beside {
		a.pending--
	}
	if got.err == nil || got.said && !a.q.Elsewhere(convert.FromRPC(got.err)) {
		return true
	}
	if a.why == nil || got.said && !a.refused {
		a.why = got.err
	}
	a.refused = a.refused || got.said && !errors.Is(convert.FromRPC(got.err), core.ErrMoved)
	return false
}

// leave lets the calls go on that are under way.
func (a *asking[R]) leave() {
	for _, stop := range a.follow {
		stop()
	}
}

// call calls one controller. The call ends with its caller, until leave, and with the pool.
func (a *asking[R]) call(ctx context.Context, h Host, beside bool) {
	var cancel context.CancelFunc
	own := context.WithoutCancel(ctx)
	if deadline, ok := ctx.Deadline(); ok {
		own, cancel = context.WithDeadline(own, deadline)
	} else {
		own, cancel = context.WithCancel(own)
	}
	if !beside {
		a.pending++
	}
	a.follow = append(a.follow, context.AfterFunc(ctx, cancel))
	started := a.p.watch(h, func() bool {
		defer cancel()
		defer context.AfterFunc(a.p.ctx, cancel)()
		resp, err := a.q.Call(own, a.p.Controller(h.Address))
		said := err == nil || connect.IsWireError(err) && core.CodeOf(convert.FromRPC(err)) != core.CodeDeadline
		a.answers <- answer[R]{resp, err, said, beside}
		return said
	})
	if !started {
		cancel()
		a.answers <- answer[R]{err: convert.RPCError(core.Errorf(core.CodeDraining, "this process is stopping")), beside: beside}
	}
}

// watch runs a call to a controller, which reports whether that answered. It does nothing, and reports so, when the
// pool is closed.
func (p *Pool) watch(h Host, call func() (answered bool)) (started bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		return false
	}
	p.mu.watched.Begin(h.Address, time.Now())
	p.wg.Go(func() {
		answered := call()
		p.mu.Lock()
		was, is := p.mu.watched.End(h.Address, time.Now(), answered)
		p.mu.Unlock()
		switch {
		case is && !was:
			p.cfg.Log.Warn("a controller does not answer; the next one acts for it", "host", h.ID, "addr", h.Address)
		case was && !is:
			p.cfg.Log.Info("a controller answers again", "host", h.ID, "addr", h.Address)
		}
	})
	return true
}
