package metadata

import (
	"context"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
)

const (
	// MajorityWait bounds calls that need a majority where there is a way without one.
	MajorityWait = time.Second
	// lacksFor is for how long nothing asks for a majority after one did not answer.
	lacksFor = time.Second
	// holdsFor is for how long the answer of a majority says that there is one.
	holdsFor = 100 * time.Millisecond
)

// Majority remembers whether a majority of the metadata answered a moment ago. The zero Majority has asked nobody. Safe
// for concurrent use.
type Majority struct {
	mu struct {
		sync.Mutex
		lacked   time.Time
		answered time.Time // when the last call began that a majority answered
	}
}

// Lacks reports whether a call would most likely wait in vain.
func (m *Majority) Lacks() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.mu.lacked.IsZero() && time.Since(m.mu.lacked) < lacksFor
}

// Missed reports whether the last call that needed a majority had none.
func (m *Majority) Missed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.mu.lacked.IsZero()
}

// Holds reports whether a majority answered a call that began a moment ago, and no later one found none.
func (m *Majority) Holds() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.lacked.IsZero() && !m.mu.answered.IsZero() && time.Since(m.mu.answered) < holdsFor
}

// note records how a call ended that began at a time.
func (m *Majority) note(began time.Time, answered bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !answered {
		m.mu.lacked = time.Now()
		return
	}
	m.mu.lacked = time.Time{}
	if began.After(m.mu.answered) {
		m.mu.answered = began
	}
}

// Ask does a call that needs a majority; CodeNoMajority if none answers within MajorityWait.
func (m *Majority) Ask(ctx context.Context, call func(context.Context) error) error {
	lacks, err := m.ask(ctx, MajorityWait, call)
	if lacks {
		return core.Errorf(core.CodeNoMajority, "no majority of the metadata answers: %w", err)
	}
	return err
}

// ask does a call that needs a majority, and ends it when wait is over. lacks: none answered.
func (m *Majority) ask(ctx context.Context, wait time.Duration, call func(context.Context) error) (lacks bool, err error) {
	cctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	began := time.Now()
	err = call(cctx)
	switch core.CodeOf(err) {
	case core.CodeUnavailable, core.CodeNoMajority, core.CodeDeadline, core.CodeUnknown:
		if ctx.Err() == nil {
			m.note(began, false)
			return true, err
		}
	case "", core.CodeNotFound, core.CodeExists, core.CodeConflict:
		m.note(began, true)
	}
	return false, err
}

// Copied is a Store of several copies, which has in one place what the callers in this process know of its majority.
// One that asks another process may find out later which kind of store that has: nil means that it is in one place now.
type Copied interface {
	Majority() *Majority
}

// MajorityOf is what is known of the majority of a store; nil: the metadata are in one place, or Majority is nil.
func MajorityOf(s Store) *Majority {
	if c, ok := s.(Copied); ok {
		return c.Majority()
	}
	return nil
}

// SerialOrOne reads at Serial, and at One while no majority of the store answers. A copy that lacks the row does not
// show that there is none: the error then is CodeNoMajority. A store in one place is asked once, and waited for.
func SerialOrOne[T any](ctx context.Context, s Store, read func(context.Context, Consistency) (T, error)) (T, error) {
	m := MajorityOf(s)
	if m == nil {
		return read(ctx, Serial)
	}
	out, one, err := orOne(ctx, m, Serial, read)
	switch {
	case err == nil || !one:
		return out, err
	case core.CodeOf(err) == core.CodeNotFound:
		return out, core.Errorf(core.CodeNoMajority, "no majority of the metadata answers, and the copy here says: %w; ask where most of the metadata are, or start those that are away", err)
	case core.CodeOf(err) == core.CodeUnavailable:
		err = noCopy(err)
	}
	return out, err
}

// noCopy hides the cause: that a wait for it was over is not that the call's time is.
func noCopy(err error) error {
	return core.Errorf(core.CodeNoMajority, "no copy of the metadata answers: %v", err)
}

// orOne reads at c, for MajorityWait at most, and at One if no majority answers, or did not a moment ago. one: the
// answer is that of one copy.
func orOne[T any](ctx context.Context, m *Majority, c Consistency, read func(context.Context, Consistency) (T, error)) (out T, one bool, err error) {
	if !m.Lacks() {
		err = m.Ask(ctx, func(ctx context.Context) (err error) {
			out, err = read(ctx, c)
			return err
		})
		if core.CodeOf(err) != core.CodeNoMajority {
			return out, false, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, MajorityWait)
	defer cancel()
	out, err = read(ctx, One)
	return out, true, err
}
