package outputhost

import (
	"maps"
	"slices"
	"time"

	"github.com/columbamq/columba/metadata"
)

// noteUnsavedLocked has a share saved with the next round if it changed, and sooner if something waits for that.
func (s *share) noteUnsavedLocked() {
	u := saveNone
	switch {
	case s.removed:
	case s.rules.Unsaved() > 0 || s.rules.LeavingMany(): // retries, or many transfers, wait for it
		u = saveNow
	case int(s.settled) >= s.group.h.cfg.CheckpointAcks || s.rules.Leaving() > 0: // a crash would deliver those again; transfers wait
		u = saveBusy
	case s.rules.Changed() || s.finished():
		u = saveSoon
	}
	s.saveLocked(u)
}

// saveLocked has the share saved that soon, or sooner.
func (s *share) saveLocked(u urgency) {
	if u == saveNone || s.removed {
		return
	}
	g := s.group
	s.urgency, g.mu.need = max(s.urgency, u), max(g.mu.need, u)
	if !s.unsaved {
		s.unsaved = true
		s.nextUnsaved, g.mu.unsaved = g.mu.unsaved, s
	}
}

// dueLocked reports whether the share is to be saved before the round of all.
func (s *share) dueLocked(now time.Time) bool {
	return s.urgency == saveNow || s.urgency == saveBusy && now.UnixNano()-s.savedAt >= int64(s.group.h.cfg.CheckpointBusy)
}

// tellSaverLocked reports what the saver is to be told, if it does not know.
func (g *group) tellSaverLocked() (tell bool, u urgency) {
	if g.mu.lateChanged {
		g.mu.need = max(g.mu.need, saveSoon)
	}
	if g.mu.need <= g.mu.told {
		return false, saveNone
	}
	g.mu.told = g.mu.need
	return true, g.mu.need
}

// takeUnsavedLocked takes the shares that are to be saved now, and answers how soon the others are.
func (g *group) takeUnsavedLocked(all bool, now time.Time) (due []*share, left urgency) {
	at := &g.mu.unsaved
	for s := *at; s != nil; s = *at {
		if !s.removed && !all && !s.dueLocked(now) {
			left = max(left, s.urgency)
			at = &s.nextUnsaved
			continue
		}
		*at, s.nextUnsaved = s.nextUnsaved, nil
		s.unsaved, s.urgency = false, saveNone
		if !s.removed {
			due = append(due, s)
		}
	}
	g.mu.need, g.mu.told = left, left
	return due, left
}

// checkpoint appends the rows of the group's shares that have changed, as they are now: of all of them, or of those that
// are due sooner. It answers how soon the others are.
func (g *group) checkpoint(rows []metadata.Row, all, final bool, now time.Time) (_ []metadata.Row, parts []saved, left urgency) {
	run := g.h.deps.Members.Self().Run
	g.savedAt.Store(now.UnixNano())
	g.mu.Lock()
	defer g.mu.Unlock()
	written := g.h.saver.stamp(now) // here, so that of two writes that overtake each other the one that knows more stays
	g.takeChangedLocked()
	for s := g.mu.touched; s != nil; s = s.nextTouched {
		s.noteUnsavedLocked()
	}
	due, left := g.takeUnsavedLocked(all, now)
	if final {
		due = slices.Collect(maps.Values(g.mu.shares))
	}
	for _, sh := range due {
		sh.settled = 0
		if !sh.rules.Changed() && sh.rules.Unsaved() == 0 && !sh.finished() && !(final && sh.rules.LeavesUnsure()) {
			continue
		}
		sh.savedAt = now.UnixNano()
		blob, token := sh.rules.Checkpoint(nil, final, now)
		part := saved{s: sh, token: token, epoch: g.mu.record.Epoch, done: sh.finished(), l: sh.l}
		if sh.claim != nil {
			part.claim = blob
		}
		parts = append(parts, part)
		rows = append(rows, metadata.Row{Key: metadata.CheckpointKey(g.id, sh.extent.ID, g.mu.record.Epoch, run), Value: blob, Written: written})
	}
	g.mu.lateChanged = false
	for id, sh := range g.mu.given {
		if sh.late.changed {
			sh.late.changed = false
			rows = append(rows, metadata.Row{Key: metadata.CheckpointKey(g.id, id, g.mu.record.Epoch, run), Value: sh.late.state.Append(nil), Written: written})
		}
	}
	return rows, parts, left
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

// notSaved has the parts of a write that failed written again, and what was given away: unlike shares it does not know
// what is durable.
func (g *group) notSaved(parts []saved) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range parts {
		p.s.saveLocked(saveSoon)
		g.touchLocked(p.s) // what waits for it makes it more urgent
	}
	for _, s := range g.mu.given {
		g.changeLateLocked(s)
	}
}

// saveAgain has a share written with the next round, since what follows from its checkpoint failed.
func (g *group) saveAgain(s *share) {
	g.mu.Lock()
	s.saveLocked(saveSoon)
	g.mu.Unlock()
	g.h.saver.note(g, saveSoon)
}
