package controller

import (
	"context"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// lacking is the error of a call that needed a majority of the metadata, and was not answered by one.
type lacking struct{ error }

// Unwrap implements errors.
func (e lacking) Unwrap() error { return e.error }

const (
	// majorityWait bounds calls that need a majority where there is a way without one.
	majorityWait = time.Second
	// lacksFor is for how long nothing asks for a majority after one did not answer: an AP queue gets its extents without it.
	lacksFor = time.Second
)

// majority remembers that no majority of the metadata answered a moment ago. The zero majority has asked nobody. Safe for concurrent use.
type majority struct {
	mu struct {
		sync.Mutex
		lacked time.Time
	}
}

func (m *majority) lacks() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.mu.lacked.IsZero() && time.Since(m.mu.lacked) < lacksFor
}

func (m *majority) note(answered bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.lacked = (time.Time{}); !answered {
		m.mu.lacked = time.Now()
	}
}

// noMajority refuses messages of a CP queue.
func noMajority(queue core.QueueID) error {
	return core.Errorf(core.CodeUnavailable, "the metadata have no majority here, so queue %s, which is CP, takes no messages: publish where most of the metadata are, or start those that are away", queue)
}

// withMajority does a call that needs a majority of the metadata. The error is lacking if none answers within majorityWait.
func (h *Host) withMajority(ctx context.Context, call func(context.Context) error) error {
	if h.cfg.Alone {
		return call(ctx)
	}
	cctx, cancel := context.WithTimeout(ctx, majorityWait)
	defer cancel()
	err := call(cctx)
	switch core.CodeOf(err) {
	case core.CodeUnavailable, core.CodeDeadline, core.CodeUnknown:
		if ctx.Err() == nil {
			h.majority.note(false)
			return lacking{core.Errorf(core.CodeUnavailable, "no majority of the metadata answers: %w", err)}
		}
	case "", core.CodeNotFound, core.CodeExists, core.CodeConflict:
		h.majority.note(true)
	}
	return err
}

// maker is this run, as create rows name it.
func (h *Host) maker() metadata.Maker {
	self := h.deps.Members.Self()
	return metadata.Maker{Controller: self.ID, Run: self.Run}
}
