package outputhost

import (
	"context"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// claimed makes the claims of a group that delivers at most once durable, and answers the parts that are. A share that another owner has claimed
// is given up. With others that are not durable all is false; they are tried again with the next round.
func (g *group) claimed(ctx context.Context, parts []saved) (durable []saved, all bool) {
	durable, all = parts[:0], true
	for _, p := range parts {
		var err error
		if p.claim != nil {
			err = p.s.claim.Save(ctx, p.claim)
		}
		switch {
		case err == nil:
			durable = append(durable, p)
		case core.CodeOf(err) == core.CodeStale:
			g.h.log.Info("another host has claimed a share", "extent", p.s.extent.ID, "group", g.name, "err", err)
			g.giveAway(p.s, g.h.deps.Now())
		default:
			all = false
			g.h.log.Info("a claim is not saved yet", "extent", p.s.extent.ID, "group", g.name, "err", err)
			g.h.metrics.saveFailures.Inc()
			g.saveAgain(p.s)
		}
	}
	return durable, all
}

// saved applies a durable checkpoint: retries may go out, finished shares go away.
func (g *group) saved(ctx context.Context, parts []saved) {
	g.mu.Lock()
	epoch := g.mu.record.Epoch
	for _, p := range parts {
		if !p.s.removed {
			p.s.rules.Saved(p.token)
			p.s.saved = true
		}
	}
	g.mu.Unlock()
	for _, p := range parts {
		if p.done && p.epoch == epoch { // else it was rewound meanwhile
			g.finish(ctx, p, epoch)
		}
	}
}

// finish records that the group has consumed the extent, removes its checkpoints and forgets the share. A failed write
// is tried again with the next round: a finished share counts as changed.
func (g *group) finish(ctx context.Context, p saved, epoch uint64) {
	meta, now := g.h.deps.Meta, g.h.saver.stamp(g.h.deps.Now())
	id := p.s.extent.ID
	done := metadata.DoneRecord{L: p.l, Epoch: epoch, Stays: g.stays(p.s.extent)}
	err := metadata.Write(ctx, meta, metadata.Dones, metadata.DoneKey(g.id, id, epoch), done, now, 0, metadata.One)
	keys := []metadata.Key{metadata.CheckpointKey(g.id, id, epoch, g.h.deps.Members.Self().Run)}
	g.mu.Lock()
	for k := range p.s.others {
		keys = append(keys, k)
	}
	g.mu.Unlock()
	for _, k := range keys {
		if err == nil {
			err = meta.Remove(ctx, metadata.Checkpoints, k, now, metadata.One)
		}
	}
	if err != nil {
		g.h.log.Info("a finished share stays for now", "extent", id, "group", g.name, "err", err)
		g.saveAgain(p.s)
		return
	}
	g.mu.Lock()
	var r *reader
	if !p.s.removed {
		r = p.s.dropLocked()
		g.forgetHandlesLocked(p.s, nil)
	}
	g.mu.Unlock()
	if r != nil {
		r.stop()
	}
}
