package outputhost

import (
	"context"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// reach brings a group up to an epoch that the controller knows of.
func (g *group) reach(ctx context.Context, epoch uint64) error {
	g.mu.Lock()
	known := g.mu.record.Epoch
	g.mu.Unlock()
	if known >= epoch {
		return nil
	}
	record, _, err := metadata.Read[metadata.GroupRecord](ctx, g.h.deps.Meta, metadata.Groups, metadata.GroupKey(g.queue, g.name), metadata.One)
	switch {
	case err != nil:
		return core.Errorf(core.CodeOf(err), "look up group %s: %w", g.name, err)
	case record.ID != g.id || record.Epoch < epoch:
		return core.Errorf(core.CodeStale, "group %s is read at epoch %d, it is at %d", g.name, record.Epoch, epoch)
	}
	g.apply(record, true)
	return nil
}

// rewindLocked begins another epoch: what was handed out in an earlier one is settled no more, and nothing of it is saved in this one. The
// shares, without what they knew, come with the next list. The readers are to be stopped by the caller.
func (g *group) rewindLocked() (readers []*reader) {
	for _, s := range g.mu.shares {
		if r := s.dropLocked(); r != nil {
			readers = append(readers, r)
		}
		g.forgetHandlesLocked(s)
	}
	for id, s := range g.mu.given {
		delete(g.mu.given, id)
		s.late = nil
		g.forgetHandlesLocked(s)
	}
	return readers
}

// relistSoon has the list of shares asked for again.
func (h *Host) relistSoon() {
	select {
	case h.relisting <- struct{}{}:
	default:
	}
}
