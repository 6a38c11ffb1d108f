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
)

// NoMajority is the error of a call that needed a majority of the metadata, and was not answered by one.
type NoMajority struct{ error }

// Unwrap implements errors.
func (e NoMajority) Unwrap() error { return e.error }

// Majority remembers that no majority of the metadata answered a moment ago. The zero Majority has asked nobody. Safe
// for concurrent use.
type Majority struct {
	mu struct {
		sync.Mutex
		lacked time.Time
	}
}

// Lacks reports whether a call would most likely wait in vain.
func (m *Majority) Lacks() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.mu.lacked.IsZero() && time.Since(m.mu.lacked) < lacksFor
}

func (m *Majority) note(answered bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.lacked = (time.Time{}); !answered {
		m.mu.lacked = time.Now()
	}
}

// Ask does a call that needs a majority. The error is NoMajority if none answers within MajorityWait.
func (m *Majority) Ask(ctx context.Context, call func(context.Context) error) error {
	cctx, cancel := context.WithTimeout(ctx, MajorityWait)
	defer cancel()
	err := call(cctx)
	switch core.CodeOf(err) {
	case core.CodeUnavailable, core.CodeDeadline, core.CodeUnknown:
		if ctx.Err() == nil {
			m.note(false)
			return NoMajority{core.Errorf(core.CodeUnavailable, "no majority of the metadata answers: %w", err)}
		}
	case "", core.CodeNotFound, core.CodeExists, core.CodeConflict:
		m.note(true)
	}
	return err
}

// SerialOrOne reads at Serial, and at One while no majority answers. A copy that lacks the row does not show that there
// is none: the error then is CodeUnavailable.
func SerialOrOne[T any](ctx context.Context, m *Majority, read func(context.Context, Consistency) (T, error)) (out T, err error) {
	if !m.Lacks() {
		err = m.Ask(ctx, func(ctx context.Context) (err error) {
			out, err = read(ctx, Serial)
			return err
		})
		if _, lacks := err.(NoMajority); !lacks {
			return out, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, MajorityWait)
	defer cancel()
	out, one := read(ctx, One)
	switch {
	case core.CodeOf(one) == core.CodeNotFound:
		return out, core.Errorf(core.CodeUnavailable, "no majority of the metadata answers, and the copy here says: %w; ask where most of the metadata are, or start those that are away", one)
	case one != nil:
		return out, core.Errorf(core.CodeOf(one), "no copy of the metadata answers: %w", one)
	}
	return out, nil
}
