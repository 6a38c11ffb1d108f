package outputhost

import (
	"context"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/outputhost/cancels"
	"github.com/columbamq/columba/outputhost/claims"
	"github.com/columbamq/columba/outputhost/inspect"
	"github.com/columbamq/columba/wire"
)

// share is a group's part of one extent on this host. Its fields are the group's mutex's.
type share struct {
	group      *group
	extent     core.Extent
	generation uint64 // counter of the assignment
	rules      *dispatch.Share
	reader     *reader
	misses     int32                     // failures to read in a row
	noted      int32                     // bytes of texts and metadata of nacks, of those held
	failed     map[core.HostID]time.Time // stores where reading it failed lately: asked last until then
	holders    []core.HostID             // stores that hold it to its end, as last heard; nil: not sealed, or not known
	trouble    error                     // the last failure to read, for those who ask why it does not go on
	lookedAt   time.Duration             // when its seal row was read because reading failed, see elapsed
	l          core.Seq                  // the end, once it is known
	last       core.Seq                  // committed, as far as heard
	counted    inspect.CountedShare      // what controllers were told of its counts
	watch      dispatch.Watch            // of the watchdog
	gone       uint64                    // how many messages selections took of the extent, as far as known here
	began      int64                     // unix ns: when it was resumed here
	announced  int64                     // unix ns: when the oldest checkpoint was written that told an owner here of messages that leave for the dead letter queue; 0: none did
	claim      *claims.Claim             // of a group that delivers at most once, else nil
	others     map[metadata.Key]*other   // checkpoints of other owners
	late       *late                     // of a share that was given away: what is still settled here
	end        bool                      // sealed: l is known
	retired    bool                      // retention has taken it: nothing more is read, and the next list lacks it
	removed    bool
	saved      bool    // a checkpoint of this owner is durable
	touched    bool    // see group.touchLocked
	starved    bool    // there was no memory to read on
	reading    reading // as it was counted last, see readLocked
	waits      bool    // for a reader: the same
	unsaved    bool    // it is to be saved …
	urgency    urgency // … that soon: above saveSoon it is in the group's list of those
	pressing   bool    // whatever the budget of rows
	unbudgeted bool    // it takes none of them, see waitsLocked
	secured    secured // what was merged of other owners
	held       int32   // bytes it holds, as counted in the host's memory
	minority   uint32  // number of the list of a minority that has it; 0: the queue's own list has it
	place      uint32  // see saveLine; guarded by its mutex
	settled    int32   // messages since the last checkpoint
	savedAt    uint32  // ms by elapsed, which wrap around: when a checkpoint was taken last that may be stored

	nextTouched, nextUnsaved *share // in the lists of the group
	instead                  *share // what handles of it mean by now; nil: itself
}

// late is what stays of a share that was given to another host: messages that were handed out here may still be settled
// here. It is saved in this host's own row, where the new owner finds it. The group's mutex's.
type late struct {
	state   dispatch.State
	written time.Time // stamp of the row that has it as it is, also if that is written twice; zero: none has it
	first   int64     // version of the first row that tells all of it, see dispatch.Version; 0: none had room for all
	changed bool      // since it was saved
	writing bool      // its row is on the way to the metadata
	durable bool      // what it was when the share was given away is saved
	until   time.Time
}

// other is another owner's checkpoint of a share, as last seen. That owner may live on and settle what it had handed
// out.
type other struct {
	value   string
	written time.Time // its stamp
	since   time.Time // unchanged
	known   bool      // the share was resumed from it, or from one before which it only settles some messages
	missed  bool      // by the last read, of one copy: after two it is gone
}

// shareOf is the share of this host that has the rules; nil once it was dropped. The caller holds the group's mutex.
func shareOf(rules *dispatch.Share) *share {
	s, _ := rules.Owner.(*share)
	return s
}

// finished: the group has consumed the extent to its end.
func (s *share) finished() bool { return s.end && s.rules.Done(s.l) }

func (s *share) timers() bool { return s.extent.Kind == core.KindTimer }

// knownLocked is what a store needs not send of a timer extent, encoded; nil when that would be too long.
func (s *share) knownLocked() []byte {
	if !s.timers() {
		return nil
	}
	known, _ := s.rules.Known().Append(nil)
	if len(known) > wire.MaxKnown {
		return nil
	}
	return known
}

// lastOwedLocked is the last message that is not settled, or held, as far as heard: what was settled unseen at the end
// may be on no store.
func (s *share) lastOwedLocked() core.Seq {
	known := s.rules.Known()
	for r := range known.Ranges() {
		if r.First <= s.last && s.last <= r.Last {
			return r.First - 1
		}
	}
	return s.last
}

// addShare resumes a share from what its owners saved. Removed records of the extent count as settled, also in a share
// that exists already. It does nothing once the list of the assignment is not current any more.
func (g *group) addShare(ctx context.Context, e core.Extent, a *pb.Assignment, gone dispatch.State, l accepted) error {
	current := l.current
	holders := holdersOf(a)
	g.mu.Lock()
	if !current() {
		g.mu.Unlock()
		return nil
	}
	have, epoch, late := g.mu.shares[e.ID], g.mu.record.Epoch, int64(0)
	if old := g.mu.given[e.ID]; old != nil {
		late = old.late.first // before the rows are read: none of them is of a later hand-over
	}
	if have != nil && len(holders) > 0 {
		have.holders = holders
		g.touchLocked(have)
	}
	g.mu.Unlock()
	if have != nil {
		g.forgo(have, gone)
		return nil
	}
	// The list may be older than the end of the share: its checkpoints are gone by now, it would begin anew. The share is
	// dropped only after its done row is written, so it is enough to look now.
	read := ownerReads
	if l.maker.Minority {
		read = minorityReads
	}
	done, err := g.h.isDone(ctx, g.id, e.ID, epoch, read)
	if err != nil || done {
		return err
	}
	own := metadata.CheckpointKey(g.id, e.ID, epoch, g.h.deps.Members.Self().Run)
	from, err := g.h.savedState(ctx, own, g.counts(e, epoch), read, late)
	if err != nil {
		return core.Errorf(core.CodeOf(err), "resume extent %s of group %s: %w", e.ID, g.name, err)
	}
	state := from.state
	claim, err := g.claim(ctx, e, epoch, &state)
	if err != nil {
		return core.Errorf(core.CodeOf(err), "resume extent %s of group %s: %w", e.ID, g.name, err)
	}
	var decided cancels.Decided
	if e.Kind == core.KindTimer {
		if decided, err = g.h.cancels.Read(ctx, e.ID); err != nil && l.minority() == 0 { // without a majority nothing is cancelled
			return err
		}
	}
	state.Merge(gone)
	now := g.h.deps.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.closed || g.mu.shares[e.ID] != nil || !current() {
		return nil
	}
	if g.mu.record.Epoch != epoch { // what was read is void
		return core.Errorf(core.CodeStale, "a seek moved group %s meanwhile; read extent %s again", g.name, e.ID)
	}
	old, unsaved := g.mu.given[e.ID], false
	if old != nil { // it comes back
		delete(g.mu.given, e.ID)
		unsaved = old.late.changed || old.late.writing
		if late > 0 && old.late.first == late && from.covered >= late { // since then it has only settled messages
			state.MergeCovered(old.late.state)
		} else {
			state.Merge(old.late.state)
		}
		old.late = nil
		old.countHeldLocked()
	}
	s := &share{group: g, extent: e, generation: a.Counter, minority: l.minority(), holders: holders, others: from.others, claim: claim, gone: gone.Consumed(), began: now.UnixNano()}
	if !from.announced.IsZero() {
		s.announced = from.announced.UnixNano()
	}
	if s.timers() {
		decided.Resume(&state, g.id)
		s.rules = g.mu.rules.AddTimers(e.ID, state, now)
		decided.Withhold(s.rules, now)
	} else {
		s.rules = g.mu.rules.AddShare(e.ID, state, now)
	}
	if len(s.others) == 0 {
		s.rules.CoverNothing()
	}
	switch {
	case a.Retry:
		s.rules.Returning()
	case e.Queue != g.queue:
		s.rules.Merged(int(a.Rate))
	}
	g.mu.shares[e.ID] = s
	g.mu.ordered, g.mu.reorder = nil, true
	s.rules.Owner = s
	if old != nil {
		g.renameHandlesLocked(old, s)
	}
	if unsaved { // its late row is not written any more
		s.rules.Outdated()
	}
	return nil
}

// claim makes the share of a group that delivers at most once this host's own: what owners before it claimed is done.
func (g *group) claim(ctx context.Context, e core.Extent, epoch uint64, state *dispatch.State) (*claims.Claim, error) {
	g.mu.Lock()
	delivery := g.mu.record.Spec.Delivery
	g.mu.Unlock()
	if delivery != core.AtMostOnce {
		return nil, nil
	}
	if g.stays(e) {
		epoch = 0
	}
	now := g.h.deps.Now()
	claim, blob, err := claims.Take(ctx, g.h.deps.Meta, metadata.ClaimKey(g.id, e.ID, epoch), g.h.deps.Members.Self().Run, core.NewID(now))
	if err != nil || blob == nil {
		return claim, err
	}
	claimed, err := dispatch.DecodeState(blob)
	if err == nil {
		state.Merge(claimed)
	}
	return claim, err
}

// forgo settles what selections took of a share's extent: nothing of it is handed out from now on.
func (g *group) forgo(s *share, gone dispatch.State) {
	g.mu.Lock()
	taken := !s.removed && gone.Consumed() > s.gone
	if taken {
		s.absorbLocked(gone, g.h.deps.Now())
		s.gone = gone.Consumed()
	}
	g.mu.Unlock()
	if taken {
		g.pump()
	}
}

// How a share is resumed. A copy of the metadata that was cut off for a while lacks what other owners saved meanwhile:
// with it alone a whole extent would be delivered again. So a share of the queue's own list waits for a majority. One
// of a minority's list was never elsewhere.
var (
	ownerReads    = []metadata.Consistency{metadata.Quorum}
	minorityReads = []metadata.Consistency{metadata.Quorum, metadata.One}
)

// dropLocked takes a share out of its group and returns its reader, which the caller stops. Handles of consumers still
// lead to it.
func (s *share) dropLocked() *reader {
	g := s.group
	s.removed = true
	s.takenLocked()
	delete(g.mu.shares, s.extent.ID)
	g.mu.ordered, g.mu.reorder = nil, true
	g.mu.room = g.countReadingLocked(s) || g.mu.room
	g.mu.dropped++
	s.rules.Owner = nil
	g.mu.rules.RemoveShare(s.rules)
	g.noteOpeningLocked()
	s.countHeldLocked()
	r := s.reader
	s.reader = nil
	return r
}

// countHeldLocked tells the host's memory how much the share holds: one that was given away what nacks left, until it
// is forgotten.
func (s *share) countHeldLocked() {
	held, noted := 0, 0
	switch {
	case !s.removed:
		held, noted = s.rules.Held(), s.rules.NoteBytes()
	case s.late != nil:
		held, noted = int(s.noted), int(s.noted)
	}
	if before := int(s.held); held != before {
		s.group.h.memory.Count(before, held)
		s.held = int32(held)
	}
	if before := int(s.noted); noted != before { // at most dispatch.MaxNoteBytes and what is on the way there
		s.group.h.notes.Count(before, noted)
		s.noted = int32(noted)
	}
}

// sourcesLocked are those of the share's extent.
func (s *share) sourcesLocked(now time.Time) []membership.Host {
	return s.group.h.sources.Of(s.extent, s.holders, s.failed, now)
}

// lookEvery bounds how often a share's seal row is read because reading fails.
const lookEvery = 250 * time.Millisecond

// look reads the seal row of the share's extent: its end, once fixed, and its holders, which repair may have changed.
func (g *group) look(ctx context.Context, s *share) error {
	seal, _, err := metadata.Read[metadata.SealRecord](ctx, g.h.deps.Meta, metadata.Seals, metadata.SealKey(s.extent.ID), metadata.One)
	if core.CodeOf(err) == core.CodeNotFound {
		return nil // nobody has sealed it
	}
	if err != nil {
		return core.Errorf(core.CodeOf(err), "look up the end of extent %s: %w", s.extent.ID, err)
	}
	g.ended(s, seal)
	return nil
}

// ended takes over what a seal row says: the end of the extent, once it is fixed, and its holders.
func (g *group) ended(s *share, seal metadata.SealRecord) {
	g.mu.Lock()
	finished := false
	if seal.State.HasEnd() && !s.removed {
		s.end, s.l, s.last, s.holders, s.retired = true, seal.L, max(s.last, seal.L), seal.Holders, seal.State == core.ExtentRetired
		finished = s.finished()
		g.touchLocked(s)
	}
	g.mu.Unlock()
	if finished {
		g.saveAgain(s)
	}
}
