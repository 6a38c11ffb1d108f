package outputhost

import (
	"context"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// saver writes checkpoints: those of all shares that changed, together, once a second; at once when retries wait for theirs. What
// becomes urgent while a write is under way goes into the next one.
type saver struct {
	h    *Host
	wake chan struct{}
	mu   struct {
		sync.Mutex
		dirty map[*group]struct{}
	}
}

func newSaver(h *Host) *saver {
	s := &saver{h: h, wake: make(chan struct{}, 1)}
	s.mu.dirty = make(map[*group]struct{})
	return s
}

// note says that shares of g changed.
func (s *saver) note(g *group, urgent bool) {
	s.mu.Lock()
	s.mu.dirty[g] = struct{}{}
	s.mu.Unlock()
	if urgent {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

func (s *saver) run(ctx context.Context) {
	tick := time.NewTicker(s.h.cfg.CheckpointEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-s.wake:
		}
		cctx, cancel := context.WithTimeout(ctx, s.h.cfg.CallTimeout)
		s.save(cctx, false)
		cancel()
	}
}

// saved is one share's part of a write.
type saved struct {
	s     *share
	token uint64
	done  bool // the share was consumed to its end
	l     core.Seq
}

// save writes the checkpoints of the groups that changed. On an error they stay dirty.
func (s *saver) save(ctx context.Context, final bool) {
	s.mu.Lock()
	dirty := s.mu.dirty
	s.mu.dirty = make(map[*group]struct{})
	s.mu.Unlock()
	if len(dirty) == 0 {
		return
	}
	now := s.h.deps.Now()
	var rows []metadata.Row
	parts := make(map[*group][]saved)
	run := s.h.deps.Members.Self().Run
	for g := range dirty {
		g.mu.Lock()
		for id, sh := range g.mu.shares {
			if !sh.rules.Changed() && sh.rules.Unsaved() == 0 && !sh.finished() {
				continue
			}
			blob, token := sh.rules.Checkpoint(nil, final, now)
			parts[g] = append(parts[g], saved{sh, token, sh.finished(), sh.l})
			rows = append(rows, metadata.Row{Key: metadata.CheckpointKey(g.id, id, g.mu.record.Epoch, run), Value: blob, Written: now})
		}
		g.mu.Unlock()
	}
	began := time.Now()
	if err := s.h.deps.Meta.PutAll(ctx, metadata.Checkpoints, rows, metadata.One); err != nil {
		s.h.log.Warn("checkpoints could not be saved", "shares", len(rows), "err", err)
		s.h.metrics.saveFailures.Inc()
		for g := range dirty {
			s.note(g, false)
		}
		return
	}
	s.h.metrics.saveSeconds.Observe(time.Since(began).Seconds())
	for g, ps := range parts {
		g.saved(ctx, ps)
		if !final {
			g.pump()
		}
	}
}

// saved applies a durable checkpoint: retries may go out, rows of earlier owners and finished shares go away.
func (g *group) saved(ctx context.Context, parts []saved) {
	var left []metadata.Key
	g.mu.Lock()
	epoch := g.mu.record.Epoch
	for _, p := range parts {
		if p.s.removed {
			continue
		}
		p.s.rules.Saved(p.token)
		left = append(left, p.s.left...)
		p.s.left = nil
	}
	g.mu.Unlock()
	for _, k := range left {
		if err := g.h.deps.Meta.Remove(ctx, metadata.Checkpoints, k, g.h.deps.Now(), metadata.One); err != nil {
			g.h.log.Info("an old checkpoint stays behind", "group", g.name, "err", err)
		}
	}
	for _, p := range parts {
		if p.done {
			g.finish(ctx, p, epoch)
		}
	}
}

// finish records that the group has consumed the extent, removes its checkpoint and forgets the share. What fails is tried again with the
// next round: a finished share counts as changed.
func (g *group) finish(ctx context.Context, p saved, epoch uint64) {
	meta, now := g.h.deps.Meta, g.h.deps.Now()
	id := p.s.extent.ID
	err := metadata.Write(ctx, meta, metadata.Dones, metadata.DoneKey(g.id, id), metadata.DoneRecord{L: p.l, Epoch: epoch}, now, 0, metadata.One)
	if err == nil {
		key := metadata.CheckpointKey(g.id, id, epoch, g.h.deps.Members.Self().Run)
		err = meta.Remove(ctx, metadata.Checkpoints, key, g.h.deps.Now(), metadata.One)
	}
	if err != nil {
		g.h.log.Info("a finished share stays for now", "extent", id, "group", g.name, "err", err)
		g.h.saver.note(g, false)
		return
	}
	g.mu.Lock()
	var r *reader
	if !p.s.removed {
		r = p.s.dropLocked()
	}
	g.mu.Unlock()
	if r != nil {
		r.stop()
	}
}
