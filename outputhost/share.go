package outputhost

import (
	"context"
	"strconv"
	"strings"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/metadata"
)

// share is a group's part of one extent on this host. Its fields are the group's mutex's.
type share struct {
	group      *group
	extent     core.Extent
	generation uint64 // counter of the assignment
	rules      *dispatch.Share
	reader     *reader
	tries      int      // of opening a reader
	misses     int      // of them, failed in a row
	restored   bool     // an earlier owner left messages under way: read on even without consumers, to see their locks end
	end        bool     // sealed …
	l          core.Seq // … at this seq
	last       core.Seq // committed, as far as heard
	removed    bool
	left       []metadata.Key // checkpoints of earlier owners, removed once ours is durable
}

// finished: the group has consumed the extent to its end.
func (s *share) finished() bool { return s.end && s.rules.Done(s.l) }

// addShare resumes a share from what its owners saved.
func (g *group) addShare(ctx context.Context, e core.Extent, generation uint64) error {
	g.mu.Lock()
	if s := g.mu.shares[e.ID]; s != nil {
		s.generation = generation
		g.mu.Unlock()
		return nil
	}
	epoch := g.mu.record.Epoch
	g.mu.Unlock()
	// The list may be older than the end of the share: its checkpoints are gone by now, it would begin anew. The share is dropped only
	// after its done row is written, so it is enough to look now.
	done, err := g.h.isDone(ctx, g.id, e.ID, epoch)
	if err != nil || done {
		return err
	}
	state, left, err := g.h.savedState(ctx, g.id, e.ID, epoch)
	if err != nil {
		return core.Errorf(core.CodeOf(err), "resume extent %s of group %s: %w", e.ID, g.name, err)
	}
	now := g.h.deps.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.closed || g.mu.shares[e.ID] != nil {
		return nil
	}
	s := &share{group: g, extent: e, generation: generation, left: left, restored: state.Pending() > 0}
	s.rules = g.mu.rules.AddShare(e.ID, state, now)
	g.mu.shares[e.ID] = s
	g.mu.ordered = nil
	g.mu.byRules[s.rules] = s
	return nil
}

// isDone reports whether the group has consumed the extent in this epoch.
func (h *Host) isDone(ctx context.Context, group core.GroupID, extent core.ExtentID, epoch uint64) (bool, error) {
	key := metadata.DoneKey(group, extent)
	d, _, err := metadata.Read[metadata.DoneRecord](ctx, h.deps.Meta, metadata.Dones, key, metadata.Quorum)
	if err != nil && core.CodeOf(err) != core.CodeNotFound {
		d, _, err = metadata.Read[metadata.DoneRecord](ctx, h.deps.Meta, metadata.Dones, key, metadata.One)
	}
	switch {
	case core.CodeOf(err) == core.CodeNotFound:
		return false, nil
	case err != nil:
		return false, core.Errorf(core.CodeOf(err), "look whether extent %s is consumed: %w", extent, err)
	}
	return d.Epoch == epoch, nil
}

// savedState merges the checkpoints of all owners of the present epoch.
func (h *Host) savedState(ctx context.Context, group core.GroupID, extent core.ExtentID, epoch uint64) (dispatch.State, []metadata.Key, error) {
	var state dispatch.State
	var left []metadata.Key
	partition := metadata.CheckpointPartition(group, extent)
	rows, _, err := h.deps.Meta.List(ctx, metadata.Checkpoints, partition, "", 1000, metadata.Quorum)
	if err != nil {
		rows, _, err = h.deps.Meta.List(ctx, metadata.Checkpoints, partition, "", 1000, metadata.One)
	}
	if err != nil {
		return state, nil, err
	}
	own := metadata.CheckpointKey(group, extent, epoch, h.deps.Members.Self().Run)
	for _, row := range rows {
		if epochOf(row.Key) != epoch {
			continue
		}
		s, err := dispatch.DecodeState(row.Value)
		if err != nil {
			return state, nil, err
		}
		state.Merge(s)
		if row.Key != own {
			left = append(left, row.Key)
		}
	}
	return state, left, nil
}

// epochOf reads the epoch of a checkpoint's key; a key of another form has none of ours.
func epochOf(k metadata.Key) uint64 {
	text, _, _ := strings.Cut(k.Row, "/")
	epoch, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return ^uint64(0)
	}
	return epoch
}

// dropLocked forgets a share and stops its reader; the caller has saved what is to be saved.
func (s *share) dropLocked() *reader {
	g := s.group
	s.removed = true
	delete(g.mu.shares, s.extent.ID)
	g.mu.ordered = nil
	delete(g.mu.byRules, s.rules)
	for _, c := range g.mu.consumers {
		if handle, known := c.handles[s]; known {
			c.shares[handle] = nil // its number stays: it must not mean another extent
			delete(c.handles, s)
		}
	}
	g.mu.rules.RemoveShare(s.rules)
	r := s.reader
	s.reader = nil
	return r
}
