package outputhost

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// noteUnsavedLocked has a share saved in its turn if it changed, and sooner if something waits for that.
func (s *share) noteUnsavedLocked() {
	g := s.group
	switch {
	case s.removed:
		return
	case s.rules.Unsaved() > 0 || s.rules.LeavingMany(): // retries and claims, or many transfers, wait for it
		s.saveLocked(saveNow)
	case s.rules.Leaving() > 0: // transfers wait
		s.saveLocked(saveBusy)
	case s.rules.Changed():
		s.saveLocked(saveSoon)
	}
	if s.finished() { // its done row waits
		s.saveLocked(saveRound)
	}
	if int(s.settled) >= g.h.cfg.CheckpointAcks && !g.h.saver.behind.Load() { // a crash would deliver those again
		s.saveLocked(saveEarly)
	}
}

// saveLocked has the share saved that soon, or sooner.
func (s *share) saveLocked(u urgency) {
	if u == saveNone || s.removed {
		return
	}
	g := s.group
	fresh, listed := !s.unsaved, s.urgency > saveSoon
	s.unsaved, s.urgency = true, max(s.urgency, u)
	switch {
	case s.pressing:
	case u.presses():
		s.pressing = true
		g.h.saver.pressing.Add(1)
		g.h.saver.line.remove(s)
		if s.claim != nil && s.claim.Err() != nil { // it waits for a place, and then hangs or fails again
			s.waitsLocked()
		}
	case fresh && u != saveTurn:
		g.h.saver.line.add(s, g.h.elapsed(g.h.deps.Now()))
	}
	if u == saveSoon {
		return
	}
	g.mu.need = max(g.mu.need, u)
	if !listed {
		s.nextUnsaved, g.mu.unsaved = g.mu.unsaved, s
	}
}

// waitsLocked has the share take none of the budget until rows of it are written: only its done row waits, for a
// majority of the metadata, or its last claim failed.
func (s *share) waitsLocked() {
	if s.pressing && !s.unbudgeted {
		s.unbudgeted = true
		s.group.h.saver.pressing.Add(-1)
	}
}

// takenLocked ends that the share is to be saved: it is about to be, or it was taken out of its group. It stays in the
// list.
func (s *share) takenLocked() {
	if !s.unsaved {
		return
	}
	s.unsaved, s.urgency = false, saveNone
	if s.pressing {
		if !s.unbudgeted {
			s.group.h.saver.pressing.Add(-1)
		}
		s.pressing, s.unbudgeted = false, false
		return
	}
	s.group.h.saver.line.remove(s)
}

// wrapped is elapsed in 4 bytes: of an instant that is weeks old it may tell that it was a moment ago, which then has a
// share wait for Config.CheckpointBusy.
func (h *Host) wrapped(now time.Time) uint32 { return uint32(h.elapsed(now) / time.Millisecond) }

// tellSaverLocked answers how soon the saver has to save the group, and whether the saver does not know that yet.
func (g *group) tellSaverLocked() (tell bool, u urgency) {
	if g.mu.lateChanged {
		g.mu.need = max(g.mu.need, saveRound)
	}
	if g.mu.need <= g.mu.told {
		return false, saveNone
	}
	g.mu.told = g.mu.need
	return true, g.mu.need
}

// takeUnsavedLocked takes the shares that are to be saved now, and answers how soon the others of the list are.
func (g *group) takeUnsavedLocked(p *pass) (due []*share, left urgency) {
	at := &g.mu.unsaved
	for s := *at; s != nil; s = *at {
		if !s.removed && s.unsaved && !s.dueLocked(p) {
			left = max(left, s.urgency)
			at = &s.nextUnsaved
			continue
		}
		*at, s.nextUnsaved = s.nextUnsaved, nil
		if s.unsaved {
			due = append(due, s)
		}
	}
	if p.all {
		for _, s := range g.mu.shares {
			if s.unsaved && s.urgency == saveSoon {
				due = append(due, s)
			}
		}
	}
	g.mu.need, g.mu.told = left, left
	return due, left
}

// dueLocked reports whether a share of the list is to be saved in this pass.
func (s *share) dueLocked(p *pass) bool {
	switch {
	case p.all, s.urgency >= saveNow, p.round && s.pressing:
		return true
	case s.urgency < saveEarly || time.Duration(s.group.h.wrapped(p.now)-s.savedAt)*time.Millisecond < s.group.h.cfg.CheckpointBusy:
		return false
	case s.pressing:
		return true
	}
	p.early--
	return p.early >= 0
}

// checkpoint appends the rows of the group's shares that are to be saved in this pass, as they are now. It answers how
// soon others are to be saved that do not wait for their turn. The checkpoints are encoded outside the mutex.
func (g *group) checkpoint(rows []metadata.Row, p *pass) (_ []metadata.Row, late []lateRow, parts []saved, left urgency) {
	now := p.now
	g.savedAt.Store(now.UnixNano())
	g.mu.Lock()
	parts, left = g.draftLocked(p)
	rows, late = g.lateRowsLocked(rows, now)
	p.urgent += len(late)
	written := g.h.saver.stamp(now) // here, so that of two writes that overtake each other the one that knows more stays
	g.mu.Unlock()
	run := g.h.deps.Members.Self().Run
	for i := range parts {
		p := &parts[i]
		blob := p.draft.Encode(nil)
		if p.s.claim != nil {
			p.claim = blob
		}
		p.row = metadata.Row{Key: metadata.CheckpointKey(g.id, p.s.extent.ID, p.epoch, run), Value: blob, Written: written}
		rows = append(rows, p.row)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range parts {
		p.s.rules.Conclude(p.draft)
	}
	return rows, late, parts, left
}

// draftLocked makes drafts of the checkpoints of the shares that are to be saved now.
func (g *group) draftLocked(p *pass) (parts []saved, left urgency) {
	now := p.now
	g.takeChangedLocked()
	for s := g.mu.touched; s != nil; s = s.nextTouched {
		s.noteUnsavedLocked()
	}
	due, left := g.takeUnsavedLocked(p)
	if p.final {
		due = slices.Collect(maps.Values(g.mu.shares))
	}
	noMajority := g.h.saver.noMajority(now)
	for _, s := range due {
		presses := s.pressing
		s.takenLocked()
		done, secure := s.finished(), s.secured == securedAsked
		if done && noMajority { // its done row waits
			done, left = false, max(left, saveRound)
			s.saveLocked(saveRound)
			s.waitsLocked()
		}
		s.settled = 0
		if !s.rules.Changed() && s.rules.Unsaved() == 0 && !done && !secure && !(p.final && s.rules.LeavesUnsure()) {
			continue
		}
		if presses {
			p.urgent++
		}
		before := s.savedAt
		s.savedAt = g.h.wrapped(now)
		draft := s.rules.Draft(p.final, now)
		parts = append(parts, saved{s: s, draft: draft, token: draft.Token(), epoch: g.mu.record.Epoch, done: done, l: s.l, secure: secure,
			presses: presses, before: before})
		if secure {
			s.secured = securedPending
		}
	}
	return parts, left
}

// lateRowsLocked appends the rows of shares that were given away and have changed since.
func (g *group) lateRowsLocked(rows []metadata.Row, now time.Time) (_ []metadata.Row, late []lateRow) {
	g.mu.lateChanged = false
	for _, s := range g.mu.given {
		if !s.late.changed {
			continue
		}
		late = append(late, lateRow{s: s, before: s.savedAt})
		s.late.changed, s.late.writing, s.savedAt = false, true, g.h.wrapped(now)
		rows = append(rows, s.lateRowLocked(now))
	}
	return rows, late
}

// lateRowLocked is the row of a share that was given away. The same state is the same version: the next owner may have
// resumed from it, and covers no later one that it does not hear of.
func (s *share) lateRowLocked(now time.Time) metadata.Row {
	g, l := s.group, s.late
	if l.written.IsZero() {
		l.written = g.h.saver.stamp(now)
	}
	blob, whole := l.state.Fit(nil)
	if whole && l.first == 0 {
		l.first = l.written.UnixMicro()
	}
	return metadata.Row{Key: metadata.CheckpointKey(g.id, s.extent.ID, g.mu.record.Epoch, g.h.deps.Members.Self().Run), Value: blob, Written: l.written}
}

// unsavedSharesLocked is how many shares have changes that a crash now would forget.
func (g *group) unsavedSharesLocked() (n int) {
	for _, s := range g.mu.shares {
		if s.rules.Changed() || s.rules.Unsaved() > 0 {
			n++
		}
	}
	return n
}

// notSaved has parts that were not stored written again, as urgently as before.
func (g *group) notSaved(parts []saved) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range parts {
		p.securedLocked(false)
		p.s.savedAt = p.before
		u := saveSoon
		if p.presses {
			u = saveRound
		}
		p.s.saveLocked(u)
		g.touchLocked(p.s) // what waits for it makes it more urgent
	}
}

// lateWritten ends the write of shares that were given away, and has those written again that were lost.
func (g *group) lateWritten(late, lost []lateRow) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range late {
		if r.s.late != nil { // else it came back, or a seek ended it
			r.s.late.writing = false
		}
	}
	for _, r := range lost {
		if r.s.late != nil {
			r.s.savedAt = r.before
			g.changeLateLocked(r.s)
		}
	}
}

// saveAgain has a share written with the next round, since what follows from its checkpoint failed.
func (g *group) saveAgain(s *share) {
	g.mu.Lock()
	s.saveLocked(saveRound)
	g.mu.Unlock()
	g.h.saver.note(g, saveRound)
}

// claimed makes the claims of a group that delivers at most once durable, and answers the parts that are. A share that
// another owner has claimed is given up. With others that are not durable all is false; they are tried again with the
// next round.
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
			g.h.log.Info("another host claimed a share; this host gives the share up", "extent", p.s.extent.ID, "group", g.name, "err", err)
			g.giveAway(p.s, g.h.deps.Now())
		default:
			all = false
			g.h.log.Info("cannot save a claim; the host tries again in the next round", "extent", p.s.extent.ID, "group", g.name, "err", err)
			g.h.metrics.saveFailures.Inc()
			g.mu.Lock()
			p.securedLocked(false)
			g.mu.Unlock()
			g.saveAgain(p.s)
		}
	}
	return durable, all
}

// saved applies durable checkpoints: their retries may be delivered, and finished shares are removed.
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
	g.secure(ctx, parts)
	for _, p := range parts {
		switch {
		case !p.done || p.epoch != epoch: // with another epoch, it was rewound meanwhile
		case g.h.saver.noMajority(g.h.deps.Now()):
			g.saveAgain(p.s)
		default:
			g.finish(ctx, p, epoch)
		}
	}
}

// finish records that the group has consumed the extent, removes its checkpoints and forgets the share. The checkpoints
// say the same, so they are removed only after the done row is at Quorum: the group would get the whole extent again if
// both were lost. A failed write is tried again: a finished share counts as changed.
func (g *group) finish(ctx context.Context, p saved, epoch uint64) {
	meta, now := g.h.deps.Meta, g.h.saver.stamp(g.h.deps.Now())
	id := p.s.extent.ID
	done := metadata.DoneRecord{L: p.l, Epoch: epoch, Stays: g.stays(p.s.extent)}
	err := g.h.saver.atQuorum(ctx, func(ctx context.Context) error {
		return metadata.Write(ctx, meta, metadata.Dones, metadata.DoneKey(g.id, id, epoch), done, now, 0, metadata.Quorum)
	})
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
		g.h.log.Info("cannot record that an extent is consumed; the host tries again in the next round", "extent", id, "group", g.name, "err", err)
		g.saveAgain(p.s)
		return
	}
	g.mu.Lock()
	var r *reader
	if !p.s.removed {
		r = p.s.dropLocked()
		g.forgetHandlesLocked(p.s, forgottenShare)
	}
	g.mu.Unlock()
	r.stop()
}
