package controller

import (
	"cmp"
	"context"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

const (
	// loadAgain is the pause before the extents are read once more, after the first reading failed.
	loadAgain = 2 * time.Second
	// loadPatience is for how long a call waits for the first questions to other controllers to end, and then for the
	// extents, if it needs all of them. Few extents are read sooner.
	loadPatience = time.Second
)

// loading is the first reading of the extents (docs/adr/0071). A controller beside others answers calls meanwhile, as
// far as rows answer them, and is responsible for nothing:
//
//	started ──all extents are read──▶ known ──▶ session lease, rounds, repairs, inventories, retirement
//	   ▲            │
//	   └─2 s────failed
type loading struct {
	since time.Time     // extents that were made later may be under way
	done  chan struct{} // closed when all extents are known
}

// newLoading begins just before now: an extent that is made now is made later.
func newLoading(now time.Time) *loading {
	return &loading{since: now.Add(-time.Millisecond), done: make(chan struct{})}
}

// wait blocks until all extents are known, or ctx ends, and reports which.
func (l *loading) wait(ctx context.Context) bool {
	select {
	case <-l.done:
		return true
	case <-ctx.Done():
		return false
	}
}

// mayServe is an error while this controller stands back. A call in the first moments of a controller waits until it
// knows, at most loadPatience: a refusal could end a change of several steps half way.
func (h *Host) mayServe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, loadPatience)
	defer cancel()
	h.duties.WaitDecided(ctx)
	return h.duties.StandsBack()
}

// whenLoaded is waitLoaded, and an error while this controller stands back.
func (h *Host) whenLoaded(ctx context.Context) error {
	if err := h.mayServe(ctx); err != nil {
		return err
	}
	return h.waitLoaded(ctx)
}

// waitLoaded is loaded after a wait of loadPatience at most.
func (h *Host) waitLoaded(ctx context.Context) error {
	if h.loaded() == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, loadPatience)
	defer cancel()
	h.loading.wait(ctx)
	return h.loaded()
}

// loaded is an error while this controller does not know all extents, for callers that need them.
func (h *Host) loaded() error {
	select {
	case <-h.loading.done:
		return nil
	default:
		return core.Errorf(core.CodeUnavailable, "controller %s has started a moment ago, and reads the extents; ask again", h.deps.Members.Self().ID)
	}
}

// Ready is an error while this controller does not do all of its work yet. Operators do not stop the next controller
// before that is over.
func (h *Host) Ready() error { return cmp.Or(h.loaded(), h.duties.StandsBack()) }

// firstLoad reads all extents, see load.
func (h *Host) firstLoad(ctx context.Context, made time.Time) error {
	if moved, err := metadata.MoveHints(ctx, h.deps.Meta); err != nil {
		return core.Errorf(core.CodeOf(err), "move the work hints of an earlier version: %w", err)
	} else if moved > 0 {
		h.log.Info("work hints of an earlier version were moved", "hints", moved)
	}
	if _, err := h.load(ctx, made); err != nil {
		return core.Errorf(core.CodeOf(err), "read the extents: %w", err)
	}
	select {
	case <-h.reload: // it was responsible for nothing yet
	default:
	}
	close(h.loading.done)
	return nil
}

// loadLoop does firstLoad again until it succeeds, or ctx ends.
func (h *Host) loadLoop(ctx context.Context) {
	if h.loaded() == nil {
		return
	}
	began := h.deps.now()
	var failures core.Recurring
	for ctx.Err() == nil && h.gate.wait(ctx) == nil {
		err := h.firstLoad(ctx, h.loading.since)
		if err == nil {
			h.log.Info("the extents are known", "extents", h.extents.Count(), "took", h.deps.now().Sub(began).Round(time.Millisecond))
			h.sealOnWrongClocks() // the clocks may have been judged before the extents were known
			return
		}
		if ctx.Err() == nil && failures.Failed(time.Now()) {
			h.log.Warn("the extents cannot be read yet: this controller creates and seals extents only, and tries again until they can; look at the metadata with `columba schema show`", "err", err)
		}
		select {
		case <-time.After(loadAgain):
		case <-ctx.Done():
		}
	}
}
