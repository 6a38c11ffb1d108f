package outputhost

import (
	"context"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// depth counts the messages of a group's shares on this host: what was read, as the rules know it; the rest by seqs.
func (g *group) depth(ctx context.Context) (*pb.Depth, error) {
	g.mu.Lock()
	shares := make([]*share, 0, len(g.mu.shares))
	for _, s := range g.mu.shares {
		shares = append(shares, s)
	}
	g.mu.Unlock()
	for _, s := range shares {
		if err := g.lookFor(ctx, s); err != nil {
			return nil, err
		}
	}
	now := g.h.deps.Now()
	g.mu.Lock()
	d := g.mu.rules.Depth()
	out := &pb.Depth{
		Queue: g.queuePath, Group: g.name, Ready: uint64(d.Ready), InFlight: uint64(d.InFlight), Delayed: uint64(d.Delayed + d.Dying), Blocked: uint64(d.Blocked),
	}
	for _, s := range g.mu.shares {
		if unread := s.rules.Unread(s.last); s.rules.KeptBack() || s.timers() && (s.reader == nil || !s.reader.more) {
			out.Delayed += unread
		} else {
			out.Ready += unread
		}
	}
	if d.OldestReady > 0 {
		out.OldestReadyMs = max(0, (now.UnixMicro()-d.OldestReady)/1000)
	}
	g.mu.Unlock()
	if (core.GroupSpec{Queue: g.queuePath}).OnDLQ() {
		return out, nil
	}
	dead, err := g.h.stored(ctx, core.DLQPath(g.queuePath, g.name))
	out.Dead = dead
	return out, err
}

// lookFor asks a store how far a share's extent goes, when no reader keeps it known.
func (g *group) lookFor(ctx context.Context, s *share) error {
	g.mu.Lock()
	known := s.reader != nil && s.last > 0 || s.end
	g.mu.Unlock()
	if known {
		return nil
	}
	last, _, err := g.h.readable(ctx, s.extent, g.id)
	if err != nil {
		return err
	}
	g.mu.Lock()
	s.last = max(s.last, last)
	g.mu.Unlock()
	return nil
}

// stored counts the messages a queue holds.
func (h *Host) stored(ctx context.Context, path string) (uint64, error) {
	id, err := h.queueID(ctx, path)
	if core.CodeOf(err) == core.CodeNotFound {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n := uint64(0)
	for r, err := range metadata.All[metadata.ExtentRecord](ctx, h.deps.Meta, metadata.Extents, id.String(), metadata.One) {
		if err != nil {
			return 0, err
		}
		last, _, err := h.readable(ctx, r.Value.Extent, core.GroupID{})
		if err != nil {
			return 0, err
		}
		n += uint64(last)
	}
	return n, nil
}
