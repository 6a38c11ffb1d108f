package node

import (
	"context"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/lifecycle"
)

// watchEvery is how often the metadata are asked whether they still work.
const watchEvery = time.Second

// watch ends the process when its metadata have failed for good: nothing works without them, and only a restart, by a supervisor,
// brings them back.
type watch struct {
	failed func() error
}

var _ lifecycle.Part = (*watch)(nil)

func (w *watch) Name() string { return "metadata" }

// Start has nothing to acquire.
func (w *watch) Start(context.Context) error { return nil }

// Run returns why the metadata failed, or nil when ctx ends.
func (w *watch) Run(ctx context.Context) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := w.failed(); err != nil {
			return core.Errorf(core.CodeOf(err), "the process cannot go on: %w", err)
		}
	}
}

// Stop has nothing to release.
func (w *watch) Stop(context.Context) error { return nil }
