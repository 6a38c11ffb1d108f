package outputhost

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/core/quota"
	"github.com/columbamq/columba/metadata"
)

// saver writes checkpoints: those of all shares that changed, together, once a second; those of a group sooner when it
// has settled many messages since, as a crash would deliver them again, and at once when retries wait for theirs. The
// last ones are paced by their bytes: a lone one is written at once, and more than saveBytes a second are not, but for
// one of each group in Config.CheckpointBusy. Changes that become due meanwhile, or while a write is under way, go into the
// next one. Claims and done rows, and checkpoints at Quorum, are written beside that, of several groups at a time, so that
// a group whose rows hang holds up no other; until its own are written, the group is not saved again.
type saver struct {
	h     *Host
	wake  chan struct{}
	slots chan struct{} // groups whose claims and done rows are being written
	bytes quota.Bucket  // of checkpoints
	mu    struct {
		sync.Mutex
		dirty   map[*group]urgency
		busy    map[*group]struct{} // being saved
		written time.Time           // timestamp of the last write
		failed  time.Time           // since when none has succeeded; zero: the last one did
		err     error               // why the last one failed
		warned  time.Time           // when that was logged last
	}
	majority majority
}

// saveBytes is how many bytes of checkpoints a host writes in a second before retries wait for theirs: a share whose
// messages fail has up to 64 KiB of them, each time. The round of all groups comes on top; together they stay below 1 MB.
const saveBytes = 900_000

// saveWarning is between two warnings that checkpoints cannot be saved.
const saveWarning = 10 * time.Second

// settledAtOnce bounds the groups whose claims and done rows are written at a time.
const settledAtOnce = 8

func newSaver(h *Host) *saver {
	s := &saver{h: h, wake: make(chan struct{}, 1), slots: make(chan struct{}, settledAtOnce)}
	s.bytes.Set(saveBytes, h.deps.Now())
	s.mu.dirty, s.mu.busy = make(map[*group]urgency), make(map[*group]struct{})
	return s
}

// note says that shares of g changed.
func (s *saver) note(g *group, u urgency) {
	s.mu.Lock()
	old, known := s.mu.dirty[g]
	s.mu.dirty[g] = max(old, u)
	s.mu.Unlock()
	if u > saveSoon && (!known || u > old) {
		poke(s.wake)
	}
}

// over says that a group was saved, or failed to be.
func (s *saver) over(g *group) {
	s.mu.Lock()
	delete(s.mu.busy, g)
	urgent := s.mu.dirty[g] > saveSoon
	s.mu.Unlock()
	if urgent {
		poke(s.wake)
	}
}

func (s *saver) run(ctx context.Context) {
	tick := time.NewTicker(s.h.cfg.CheckpointEvery)
	defer tick.Stop()
	busy := time.NewTimer(time.Hour)
	defer busy.Stop()
	var settling sync.WaitGroup
	defer settling.Wait()
	for {
		all := false
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			all = true
		case <-s.wake:
		case <-busy.C:
		}
		now := s.h.deps.Now()
		due, next := s.due(all, now)
		cctx, cancel := context.WithTimeout(ctx, s.h.cfg.CallTimeout)
		settles, bytes := s.write(cctx, due, all, false)
		if s.bytes.Wait(now) == 0 { // what does not wait for the others owes nothing then
			s.bytes.Take(min(bytes, saveBytes), now)
		}
		for _, settle := range settles {
			settling.Go(func() { settle(ctx) })
		}
		cancel()
		busy.Reset(next)
	}
}

// due takes the groups that are to be saved now, and says when the next busy one will be.
func (s *saver) due(all bool, now time.Time) (due []*group, next time.Duration) {
	next = time.Hour
	paced := s.bytes.Wait(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	for g, u := range s.mu.dirty {
		if _, busy := s.mu.busy[g]; busy {
			continue
		}
		wait := s.h.cfg.CheckpointBusy - now.Sub(time.Unix(0, g.savedAt.Load()))
		switch {
		case all:
			wait = 0
		case u == saveSoon:
			continue
		case u == saveNow:
			wait = min(wait, paced)
		}
		if wait > 0 {
			next = min(next, wait)
			continue
		}
		delete(s.mu.dirty, g)
		s.mu.busy[g] = struct{}{}
		due = append(due, g)
	}
	return due, next
}

// stamp is the timestamp of what is written now: after all before, also when the clock was set back, for the store keeps what is later.
func (s *saver) stamp(now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if least := s.mu.written.Add(metadata.Tick); now.Before(least) {
		now = least
	}
	s.mu.written = now.Round(0)
	return s.mu.written
}

// all takes every group that has changed, and for final checkpoints those that have messages in flight, too.
func (s *saver) all(final bool) []*group {
	if final {
		for _, g := range s.h.groupList() {
			if g.leavesUnsure() {
				s.note(g, saveSoon)
			}
		}
	}
	due, _ := s.due(true, s.h.deps.Now())
	return due
}

// leavesUnsure reports whether a final checkpoint would tell the next owner of a share more than the last one.
func (g *group) leavesUnsure() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, sh := range g.mu.shares {
		if sh.rules.LeavesUnsure() {
			return true
		}
	}
	return false
}

// saved is one share's part of a write.
type saved struct {
	s     *share
	draft *dispatch.Draft
	token uint64
	epoch uint64 // of the group, then
	done  bool   // the share was consumed to its end
	l     core.Seq
	claim []byte // what is to be claimed with it, before anything more is handed out; nil: nothing

	row    metadata.Row // the checkpoint
	secure bool         // it is to be written at Quorum, too
}

// writes reports whether rows of the part alone are to be written once its checkpoint is.
func (p saved) writes() bool { return p.done || p.claim != nil || p.secure }

// save writes the checkpoints of groups, with all that follows from them.
func (s *saver) save(ctx context.Context, due []*group, final bool) {
	var settling sync.WaitGroup
	settles, _ := s.write(ctx, due, true, final)
	for _, settle := range settles {
		settling.Go(func() { settle(ctx) })
	}
	settling.Wait()
}

// write writes the checkpoints of groups: of all their shares that changed, or of those that are due sooner. On an error
// they stay dirty. It answers what is still to be done of groups that have claims or done rows to write, and how many
// bytes the checkpoints have.
func (s *saver) write(ctx context.Context, due []*group, all, final bool) (settles []func(ctx context.Context), bytes int) {
	now := s.h.deps.Now()
	var rows []metadata.Row
	parts := make(map[*group][]saved, len(due))
	for _, g := range due {
		var left urgency
		if rows, parts[g], left = g.checkpoint(rows, all, final, now); left > saveNone {
			s.note(g, left)
		}
	}
	for _, r := range rows {
		bytes += len(r.Value)
	}
	if len(rows) > 0 && !s.put(ctx, rows, bytes) {
		for _, g := range due {
			g.notSaved(parts[g])
			s.note(g, saveSoon)
			s.over(g)
		}
		return nil, bytes
	}
	for g, ps := range parts {
		settle := func(ctx context.Context) {
			defer s.over(g)
			durable, all := g.claimed(ctx, ps)
			g.saved(ctx, durable)
			if !final && all && len(rows) > 0 { // else what waits for a claim would be saved again at once
				g.pump()
			}
		}
		if !slices.ContainsFunc(ps, saved.writes) {
			settle(ctx)
			continue
		}
		settles = append(settles, func(ctx context.Context) {
			select {
			case s.slots <- struct{}{}:
				defer func() { <-s.slots }()
			case <-ctx.Done(): // what is called with it fails at once, and is noted
			}
			ctx, cancel := context.WithTimeout(ctx, s.h.cfg.CallTimeout)
			defer cancel()
			settle(ctx)
		})
	}
	return settles, bytes
}

// put writes rows, which have so many bytes, and reports whether they are durable.
func (s *saver) put(ctx context.Context, rows []metadata.Row, bytes int) bool {
	began := time.Now()
	if err := s.h.deps.Meta.PutAll(ctx, metadata.Checkpoints, rows, metadata.One); err != nil {
		s.noteFailed(len(rows), err)
		s.h.metrics.saveFailures.Inc()
		return false
	}
	s.noteSaved()
	s.h.metrics.saveSeconds.Observe(time.Since(began).Seconds())
	s.h.metrics.saves.Add(float64(len(rows)))
	s.h.metrics.savedBytes.Add(float64(bytes))
	return true
}

// noteFailed logs the first of failures in a row, and one now and then.
func (s *saver) noteFailed(shares int, err error) {
	now := s.h.deps.Now()
	s.mu.Lock()
	first := s.mu.failed.IsZero()
	if first {
		s.mu.failed = now
	}
	s.mu.err = err
	warn := first || now.Sub(s.mu.warned) >= saveWarning
	if warn {
		s.mu.warned = now
	}
	since := s.mu.failed
	s.mu.Unlock()
	if warn {
		s.h.log.Warn("checkpoints are not saved: a crash of this host redelivers all messages acked since the last one. Check the controller and its disk", "shares", shares, "for", now.Sub(since).Round(time.Second), "err", err)
	}
}

// failing reports whether the last write failed, and why.
func (s *saver) failing() (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.mu.failed.IsZero(), s.mu.err
}

// noteSaved logs the end of failures.
func (s *saver) noteSaved() {
	s.mu.Lock()
	since := s.mu.failed
	s.mu.failed = time.Time{}
	s.mu.Unlock()
	if !since.IsZero() {
		s.h.log.Info("checkpoints are saved again", "after", s.h.deps.Now().Sub(since).Round(time.Millisecond))
	}
}
