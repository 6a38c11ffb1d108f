package controller

import (
	"context"
	"time"

	"github.com/columbamq/columba/membership"
)

const (
	// askTimeout is for how long a new extent waits for stores to answer when too few can be counted on.
	askTimeout = 250 * time.Millisecond
	// askAgain is the pause before stores are asked once more: one that is starting refuses for a moment.
	askAgain = 20 * time.Millisecond
	// refusalHolds is for how long a store that takes no extents is not asked again whether it does.
	refusalHolds = 50 * time.Millisecond
)

// askStores asks the stores of the membership side by side, again and again, until what they said is enough, not longer
// than limit. It waits for none in particular: one that hangs holds up nobody who can do without it.
func (h *Host) askStores(ctx context.Context, limit time.Duration, enough func() bool) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	again := time.NewTicker(askAgain)
	defer again.Stop()
	h.askAll()
	for {
		heard := h.stores.Hear()
		if enough() {
			return
		}
		select {
		case <-heard:
		case <-again.C:
			h.askAll()
		case <-ctx.Done():
			return
		}
	}
}

// askAll asks those that are not being asked already.
func (h *Host) askAll() {
	for _, m := range h.stores.Adopt(h.deps.Members.Hosts("storehost"), h.deps.now()) {
		if !h.stores.BeginAsk(m.ID) {
			continue
		}
		if !h.tasks.Go(func(ctx context.Context) { h.ask(ctx, m) }) {
			h.stores.EndAsk(m.ID)
		}
	}
}

func (h *Host) ask(ctx context.Context, m membership.Host) {
	d, err := h.describe(ctx, m)
	h.stores.EndAsk(m.ID)
	if h.noteDescription(m.ID, d, err) {
		h.storesChanged()
	}
}

// storesChanged has done what was waiting for a store.
func (h *Host) storesChanged() {
	h.repairs.Sweep()
	h.freeStuck()
}
