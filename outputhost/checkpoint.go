package outputhost

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/columbamq/columba/core/quota"
	"github.com/columbamq/columba/metadata"
)

// saver writes checkpoints. Once a second it writes those of all shares that changed, together, as far as the budget of
// rows allows that. It writes those of a share sooner when the share has settled many messages since, as a crash would
// deliver them again, and at once when retries wait for theirs. The last ones are paced by their bytes: a lone one is
// written at once, and more than saveBytes a second are not, but for one of each group in Config.CheckpointBusy.
// Changes that become due meanwhile, or while a write is under way, go into the next one.
//
// The budget is the host's part of Config.CheckpointRows, see rowsOf. Shares that it leaves over wait in a line, and
// have the budget for themselves: then no share is saved early. A share whose turn does not come within
// Config.CheckpointMost is saved all the same. Shares for whose checkpoint something waits do not wait for the budget,
// and are counted in it.
//
// Groups with rows that were not stored are tried again beside that, so that a row that hangs holds up the others only
// once. Claims and done rows, and checkpoints at Quorum, are written beside that, too, of several groups at a time, so
// that a group whose rows hang holds up no other. Until its own are written, the group is not saved again.
type saver struct {
	h        *Host
	wake     chan struct{}
	slots    chan struct{} // groups whose claims and done rows are being written …
	slow     chan struct{} // … for which that took all of its time before
	bytes    quota.Bucket  // of checkpoints
	line     saveLine
	pressing atomic.Int64 // shares that are to be saved whatever the budget
	behind   atomic.Bool  // shares that are due wait for the budget
	window   rowWindow    // of the goroutine that runs the saver
	turns    []*share     // its scratch
	mu       struct {
		sync.Mutex
		dirty   map[*group]urgency              // with shares that do not wait for their turn
		busy    map[*group]struct{}             // being saved
		written time.Time                       // timestamp of the last write
		lost    map[*group]map[*share]time.Time // with rows that were not stored, and when each was tried last
		failed  time.Time                       // since when there are such groups; zero: there are none
		err     error                           // why the last write failed
		warned  time.Time                       // when that was logged last
	}
	majority majority
}

// pass is one write of the saver.
type pass struct {
	now                 time.Time
	round               bool          // of all shares that are due once a second
	all                 bool          // of all shares that changed, whatever the budget
	final               bool          // the last one: of all shares
	early               int           // how many shares may be saved early
	wait                time.Duration // until the budget may have more
	rows, urgent, bytes int           // that were written, or tried
}

// saveBytes is how many bytes of checkpoints a host writes in a second before retries wait for theirs: a share whose
// messages fail has up to 64 KiB of them, each time. The round of all groups comes on top; together they stay below 1
// MB.
const saveBytes = 900_000

// saveWarning is between two warnings that checkpoints cannot be saved.
const saveWarning = 10 * time.Second

// settledAtOnce bounds the groups whose claims and done rows are written at a time. As many are beside them for which
// that took all of its time before: groups whose rows hang would have all places.
const settledAtOnce = 8

func newSaver(h *Host) *saver {
	s := &saver{h: h, wake: make(chan struct{}, 1), slots: make(chan struct{}, settledAtOnce), slow: make(chan struct{}, settledAtOnce)}
	s.bytes.Set(saveBytes, h.deps.Now())
	s.mu.dirty, s.mu.busy, s.mu.lost = make(map[*group]urgency), make(map[*group]struct{}), make(map[*group]map[*share]time.Time)
	return s
}

// note says that shares of g changed.
func (s *saver) note(g *group, u urgency) {
	s.mu.Lock()
	old, known := s.mu.dirty[g]
	s.mu.dirty[g] = max(old, u)
	s.mu.Unlock()
	if u > saveRound && (!known || u > old) {
		poke(s.wake)
	}
}

// over says that a group was saved, or failed to be.
func (s *saver) over(g *group) {
	s.mu.Lock()
	delete(s.mu.busy, g)
	urgent := s.mu.dirty[g] > saveRound
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
		p := pass{}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			p.round = true
		case <-s.wake:
		case <-busy.C:
		}
		if p.now = s.h.deps.Now(); p.round {
			s.noteGone(p.now)
		}
		next := s.giveTurns(&p)
		due, soon := s.due(&p)
		due, again := s.lost(due)
		w := s.draft(due, &p)
		if len(again) > 0 {
			beside := s.draft(again, &p)
			settling.Go(func() { s.finish(ctx, beside) })
		}
		s.write(ctx, w, &settling)
		s.window.spend(p.rows, p.urgent, s.h.elapsed(p.now))
		if s.bytes.Wait(p.now) == 0 { // what does not wait for the others owes nothing then
			s.bytes.Take(min(p.bytes, saveBytes), p.now)
		}
		busy.Reset(min(next, soon))
	}
}

// giveTurns has the shares saved in this pass whose turn has come, and says how long it is until the next ones' may.
func (s *saver) giveTurns(p *pass) (next time.Duration) {
	now := s.h.elapsed(p.now)
	budget := rowsOf(s.h.cfg.CheckpointRows, s.h.deps.Members.Hosts("outputhost"), s.h.deps.Members.Self().ID)
	if p.round {
		s.line.begin()
	}
	room := s.window.room(budget, now) - int(s.pressing.Load())
	turns, left, next := s.line.take(s.turns[:0], room, s.h.cfg.CheckpointMost, now)
	s.behind.Store(left > 0)
	if p.wait = s.window.next(now); left > 0 {
		next = min(next, p.wait)
	} else {
		next, p.early = time.Hour, room-len(turns)
	}
	for i, sh := range turns {
		g := sh.group
		g.mu.Lock()
		turn := sh.unsaved // else it was saved, or taken out of the group, in this moment
		if turn {
			sh.saveLocked(saveTurn)
		}
		g.mu.Unlock()
		if turn {
			s.mu.Lock()
			s.mu.dirty[g] = saveTurn
			s.mu.Unlock()
		}
		turns[i] = nil
	}
	s.turns = turns
	return next
}

// due takes the groups that are to be saved now, and says how long it is until the next one is.
func (s *saver) due(p *pass) (due []*group, next time.Duration) {
	next = time.Hour
	paced := s.bytes.Wait(p.now)
	s.mu.Lock()
	defer s.mu.Unlock()
	for g, u := range s.mu.dirty {
		if _, busy := s.mu.busy[g]; busy {
			continue
		}
		wait := s.h.cfg.CheckpointBusy - p.now.Sub(time.Unix(0, g.savedAt.Load()))
		switch {
		case p.all || p.round || u == saveTurn:
			wait = 0
		case u <= saveRound:
			continue
		case u == saveEarly && p.early <= 0:
			wait = max(wait, p.wait)
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

// stamp is the timestamp of what is written now: after all before, also when the clock was set back, for the store
// keeps what is later.
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
	for _, g := range s.h.groupList() {
		if g.unsaved(final) {
			s.note(g, saveRound)
		}
	}
	due, _ := s.due(&pass{all: true, now: s.h.deps.Now()})
	return due
}

// unsaved reports whether a checkpoint would tell the next owner of a share more than the last one: with messages in
// flight, if it is a final one.
func (g *group) unsaved(final bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, sh := range g.mu.shares {
		if sh.unsaved || final && sh.rules.LeavesUnsure() {
			return true
		}
	}
	return g.mu.lateChanged
}

// save writes the checkpoints of every group that has changed, with all that follows from them.
func (s *saver) save(ctx context.Context, final bool) {
	s.finish(ctx, s.draft(s.all(final), &pass{all: true, final: final, now: s.h.deps.Now()}))
}

// finish does a write, with all that follows from it.
func (s *saver) finish(ctx context.Context, w write) {
	var settling sync.WaitGroup
	defer settling.Wait()
	s.write(ctx, w, &settling)
}

// write puts checkpoints, and goes on beside with what is still to be done of their groups.
func (s *saver) write(ctx context.Context, w write, settling *sync.WaitGroup) {
	most := s.h.cfg.CallTimeout
	if w.final { // no more time than that is left: claims that are to be given back need some of it, too
		most /= 2
	}
	cctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for _, settle := range s.put(cctx, w) {
		settling.Go(func() { settle(ctx) })
	}
}

// draft makes the checkpoints of groups that are to be saved in this pass.
func (s *saver) draft(due []*group, p *pass) write {
	w := write{final: p.final, groups: make([]groupWrite, len(due)), urgent: -p.urgent}
	for i, g := range due {
		part := groupWrite{g: g, first: len(w.rows)}
		var left urgency
		if w.rows, part.late, part.parts, left = g.checkpoint(w.rows, p); left > saveNone {
			s.note(g, left)
		}
		part.end = len(w.rows)
		w.groups[i] = part
	}
	for _, r := range w.rows {
		w.bytes += len(r.Value)
	}
	w.urgent += p.urgent
	p.rows += len(w.rows)
	p.bytes += w.bytes
	return w
}

// put writes checkpoints. Shares whose rows are not stored stay dirty, and hold up no others. It answers what is still
// to be done of groups that have claims or done rows to write.
func (s *saver) put(ctx context.Context, w write) (settles []func(ctx context.Context)) {
	unstored := s.putRows(ctx, w)
	for _, part := range w.groups {
		g := part.g
		ps, lost, lostLate := part.divide(unstored)
		if len(part.late) > 0 {
			g.lateWritten(part.late, lostLate)
		}
		if len(lost)+len(lostLate) > 0 {
			g.notSaved(lost)
			s.note(g, saveRound)
		}
		if len(unstored) > 0 && part.stored(unstored) == 0 {
			s.over(g)
			continue
		}
		settle := func(ctx context.Context) {
			defer s.over(g)
			durable, all := g.claimed(ctx, ps)
			g.saved(ctx, durable)
			if !w.final && all && len(w.rows) > 0 { // else what waits for a claim would be saved again at once
				g.pump()
			}
		}
		if !slices.ContainsFunc(ps, saved.writes) {
			settle(ctx)
			continue
		}
		settles = append(settles, func(ctx context.Context) {
			slots := s.slots
			if g.slow.Load() {
				slots = s.slow
			}
			select {
			case slots <- struct{}{}:
				defer func() { <-slots }()
			case <-ctx.Done(): // what is called with it fails at once, and is noted
			}
			ctx, cancel := context.WithTimeout(ctx, s.h.cfg.CallTimeout)
			defer cancel()
			settle(ctx)
			g.slow.Store(ctx.Err() != nil)
		})
	}
	return settles
}

// putRows writes the rows, and answers which of them may not be durable.
func (s *saver) putRows(ctx context.Context, w write) (unstored []int) {
	if len(w.rows) == 0 {
		return nil
	}
	began := time.Now()
	rows, was := w.inTurn(s.h.wrapped(s.h.deps.Now()))
	err := s.h.deps.Meta.PutAll(ctx, metadata.Checkpoints, rows, metadata.One)
	unstored = metadata.Unstored(err, len(rows))
	for i, row := range unstored {
		unstored[i] = was[row]
	}
	slices.Sort(unstored)
	s.notePut(w.groups, unstored, err)
	for _, i := range unstored {
		w.bytes -= len(w.rows[i].Value)
	}
	if err != nil {
		s.h.metrics.saveFailures.Inc()
	} else {
		s.h.metrics.saveSeconds.Observe(time.Since(began).Seconds())
	}
	n := len(w.rows) - len(unstored)
	s.h.metrics.saves.Add(float64(n))
	s.h.metrics.urgentSaves.Add(float64(min(n, w.urgent)))
	s.h.metrics.savedBytes.Add(float64(w.bytes))
	return unstored
}
