package outputhost

import (
	"context"
	"slices"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/internal/lifecycle"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

const (
	// lateFor is how long settlements are taken after a share was given away …
	lateFor = time.Minute
	// lateMargin is … but only this long before the end of a message's lock: the new owner hears of them within less.
	// They are saved within a second, and read after mergeEvery.
	lateMargin = 2*mergeEvery + time.Second
)

// giveAway ends a share that another host owns now. This host delivers and reads nothing more of it, and accepts late
// settlements for lateFor.
func (g *group) giveAway(s *share, now time.Time) {
	g.mu.Lock()
	if s.removed {
		g.mu.Unlock()
		return
	}
	s.late = &late{state: s.rules.State(now), until: now.Add(lateFor)}
	g.changeLateLocked(s)
	r := s.dropLocked()
	if g.mu.given == nil {
		g.mu.given = make(map[core.ExtentID]*share)
	}
	g.mu.given[s.extent.ID] = s
	g.mu.Unlock()
	r.stop()
	g.h.saver.note(g, saveNow)
}

// saveGiven saves the state of the shares of these groups that were given away. The controller informs the new owner
// after that. So the new owner resumes from the last state of this host, with the locks of the messages in flight. It
// answers the queues of the shares that are not saved, and why. Those hold up no others: rows, and then claims, have
// half of the time that is left, and the rest is for what the caller has to do for other queues.
func (h *Host) saveGiven(ctx context.Context, groups []*group) (failed map[core.QueueID]error) {
	now := h.deps.Now()
	var all []*share
	var rows []metadata.Row
	for _, g := range groups {
		g.mu.Lock()
		for _, s := range g.mu.given {
			if !s.late.durable {
				rows, all = append(rows, s.lateRowLocked(now)), append(all, s)
			}
		}
		g.mu.Unlock()
	}
	if len(rows) == 0 {
		return nil
	}
	unstored, err := h.saver.putGiven(ctx, rows)
	errs := make([]error, len(all))
	for _, i := range unstored {
		errs[i] = core.Errorf(core.CodeOf(err), "save shares that were given away, %d of %d of all queues: %w", len(unstored), len(rows), err)
	}
	h.releaseGiven(ctx, all, rows, errs)
	failed = make(map[core.QueueID]error)
	for i, s := range all {
		if errs[i] != nil {
			failed[s.group.queue] = errs[i]
			continue
		}
		s.group.mu.Lock()
		if s.late != nil { // else it came back, or was forgotten
			s.late.durable = true
		}
		s.group.mu.Unlock()
	}
	return failed
}

// releaseGiven gives back what was claimed of shares that were given away and whose rows are saved. errs has why a
// share is not saved. Claims that took all of their time before go last.
func (h *Host) releaseGiven(ctx context.Context, all []*share, rows []metadata.Row, errs []error) {
	var first, last []int
	for i, s := range all {
		switch {
		case s.claim == nil || errs[i] != nil:
		case s.claim.Hung():
			last = append(last, i)
		default:
			first = append(first, i)
		}
	}
	ctx, cancel := halfOf(ctx, h.cfg.CallTimeout)
	defer cancel()
	lifecycle.Each(settledAtOnce, append(first, last...), func(_, i int) {
		err := all[i].claim.Release(ctx, rows[i].Value)
		if err != nil && core.CodeOf(err) != core.CodeStale { // one that another owner has taken is ended already
			errs[i] = core.Errorf(core.CodeOf(err), "give back what was claimed of a share that was given away: %w", err)
		}
	})
}

// halfOf has a step take half of the time that is left, and most.
func halfOf(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	if until, ok := ctx.Deadline(); ok {
		most = min(most, time.Until(until)/2)
	}
	return context.WithTimeout(ctx, most)
}

// ackLateLocked settles count messages, at most maxSettled, from base of a share that was given away. It appends the
// refused messages to bad; their consumer asks the new owner.
func (s *share) ackLateLocked(base core.Seq, count uint32, attempt uint16, now time.Time, bad []dispatch.Refusal) []dispatch.Refusal {
	until := now.Add(lateMargin)
	for i := range count {
		seq := base + core.Seq(i)
		if s.late.state.Ack(seq, attempt, until) {
			s.late.written = time.Time{}
			s.group.changeLateLocked(s)
		} else if n := len(bad); n > 0 && bad[n-1].Base+core.Seq(bad[n-1].Count) == seq {
			bad[n-1].Count++
		} else {
			bad = append(bad, dispatch.Refusal{Base: seq, Count: 1, Code: core.CodeMoved})
		}
	}
	return bad
}

// changeLateLocked has a share that was given away saved again.
func (g *group) changeLateLocked(s *share) {
	s.late.changed, g.mu.lateChanged = true, true
}

// forgetGivenLocked drops the shares that were given away, once their late settlements are saved and lateFor is over.
func (g *group) forgetGivenLocked(now time.Time) {
	for id, s := range g.mu.given {
		if !s.late.changed && !s.late.writing && now.After(s.late.until) {
			delete(g.mu.given, id)
			s.late = nil
			s.countHeldLocked()
			g.forgetHandlesLocked(s, movedShare)
		}
	}
}

const (
	mergeEvery = 2 * time.Second
	// settledAfter is how long the checkpoint of an owner that lives must stay as it is before it counts as its last: that
	// owner takes settlements for lateFor, and saves them after that.
	settledAfter = lateFor + 30*time.Second
)

// mergeOthers takes over what other owners of the group's shares have settled meanwhile, and removes the checkpoints of
// those that will not write again once ours, which holds all of them, is at Quorum.
func (g *group) mergeOthers(ctx context.Context) error {
	now := g.h.deps.Now()
	var shares []*share
	g.mu.Lock()
	g.forgetGivenLocked(now)
	if at := g.h.elapsed(now); at-g.mu.merged >= mergeEvery {
		g.mu.merged = at
		for _, s := range g.mu.shares {
			if len(s.others) > 0 {
				shares = append(shares, s)
			}
		}
	}
	g.mu.Unlock()
	for _, s := range shares {
		if err := g.mergeInto(ctx, s, now); err != nil {
			return core.Errorf(core.CodeOf(err), "merge the checkpoints of extent %s: %w", s.extent.ID, err)
		}
	}
	return nil
}

func (g *group) mergeInto(ctx context.Context, s *share, now time.Time) error {
	rows, err := g.h.checkpoints(ctx, metadata.CheckpointPartition(g.id, s.extent.ID), metadata.One)
	if err != nil {
		return err
	}
	told, err := g.newsOf(s, rows)
	if err != nil {
		return err
	}
	var over []metadata.Row
	changed := false
	g.mu.Lock()
	if s.removed {
		g.mu.Unlock()
		return nil
	}
	counts := g.countsOfOthersLocked(s)
	present := make(map[metadata.Key]bool, len(rows))
	for _, row := range rows {
		present[row.Key] = true
		o, n := s.others[row.Key], told[row.Key]
		switch {
		case !counts(row.Key):
		case n != nil:
			changed = s.learnLocked(row, n, now) || changed
		case o != nil && row.Written.Equal(o.written) && s.saved && !s.rules.Changed() && (!g.h.lives(row.Key) || now.Sub(o.since) >= settledAfter):
			over = append(over, row)
		}
	}
	for k, o := range s.others { // covers stay: this copy may lack rows that others have
		if o.missed && !present[k] {
			delete(s.others, k)
		}
		o.missed = !present[k]
	}
	if len(over) > 0 && s.secured != securedAll { // ours may be lost: it is at One only
		over = nil
		if s.secured == securedNot && !g.h.saver.noMajority(now) {
			s.secured = securedAsked
			s.saveLocked(saveRound)
			defer g.h.saver.note(g, saveRound)
		}
	}
	g.mu.Unlock()
	if changed {
		g.pump()
	}
	for _, row := range over { // what was read, and not what its owner, whose clock may be behind, writes later: the next round looks
		if err := g.h.deps.Meta.Remove(ctx, metadata.Checkpoints, row.Key, row.Written, metadata.One); err != nil {
			return err
		}
	}
	return nil
}

// countsOfOthersLocked says which checkpoints of a share, by their keys, are other owners', and count.
func (g *group) countsOfOthersLocked(s *share) func(metadata.Key) bool {
	epoch := g.mu.record.Epoch
	own, counts := metadata.CheckpointKey(g.id, s.extent.ID, epoch, g.h.deps.Members.Self().Run), g.counts(s.extent, epoch)
	return func(checkpoint metadata.Key) bool { return checkpoint != own && counts(checkpoint) }
}

// news is a checkpoint of another owner that is later than the one that was seen last.
type news struct {
	state dispatch.State
	known bool // there is no news of unsettled messages in it
}

// newsOf are the rows that are news. A row is none if another copy of the metadata had a later version of it. States of
// 64 KiB are decoded here, and not under the group's mutex.
func (g *group) newsOf(s *share, rows []metadata.Row) (map[metadata.Key]*news, error) {
	before := make(map[metadata.Key][]string) // of a row that is news: values of rows that its run saved before, if this owner knows all of them
	told := make(map[metadata.Key]*news)
	g.mu.Lock()
	counts := g.countsOfOthersLocked(s)
	for _, row := range rows {
		if o := s.others[row.Key]; !counts(row.Key) || o != nil && !row.Written.After(o.written) {
			continue
		}
		n := &news{known: s.rules.Covers(versionOf(row))}
		if told[row.Key] = n; !n.known {
			before[row.Key] = s.knownOfLocked(row.Key)
		}
	}
	g.mu.Unlock()
	for _, row := range rows {
		n := told[row.Key]
		if n == nil {
			continue
		}
		var err error
		if n.state, err = dispatch.DecodeState(row.Value); err != nil {
			return nil, err
		}
		n.known = n.known || slices.ContainsFunc(before[row.Key], func(value string) bool {
			was, err := dispatch.DecodeState([]byte(value))
			return err == nil && n.state.Follows(was)
		})
	}
	return told, nil
}

// knownOfLocked are the rows of which this owner knows all, of the run that saved a checkpoint, that checkpoint first.
// An owner that gave the share away only settles some of the messages of those.
func (s *share) knownOfLocked(checkpoint metadata.Key) (values []string) {
	if o := s.others[checkpoint]; o != nil && o.known {
		values = append(values, o.value)
	}
	_, run, _ := metadata.CheckpointOf(checkpoint)
	for k, o := range s.others {
		if _, of, _ := metadata.CheckpointOf(k); of == run && o.known && k != checkpoint {
			values = append(values, o.value)
		}
	}
	return values
}

// learnLocked takes over what a checkpoint of another owner tells, and reports whether anything of it was settled that
// was not here.
func (s *share) learnLocked(row metadata.Row, n *news, now time.Time) (changed bool) {
	if v := versionOf(row); n.known && n.state.Pending() > 0 && !s.rules.Covers(v) {
		s.rules.Cover(v)
		s.rules.Outdated() // until that is saved, a later owner takes the other row for news
	}
	if o := s.others[row.Key]; o != nil && o.value == string(row.Value) {
		o.written = row.Written
		return false
	}
	s.others[row.Key] = &other{value: string(row.Value), written: row.Written, since: now, known: n.known}
	s.secured = securedNot
	return s.absorbLocked(n.state, now)
}

// absorbLocked settles what was settled elsewhere, and reports whether any of it was not here. Consumers of this host
// may hold such messages, and hear of it only when they settle them.
func (s *share) absorbLocked(elsewhere dispatch.State, now time.Time) (changed bool) {
	if s.rules.Absorb(elsewhere, now) == 0 {
		return false
	}
	s.group.mu.elsewhere++
	return true
}

// lives reports whether the membership sees the output host that wrote a checkpoint, in the same run.
func (h *Host) lives(checkpoint metadata.Key) bool {
	_, run, _ := metadata.CheckpointOf(checkpoint)
	return slices.ContainsFunc(h.deps.Members.Hosts("outputhost"), func(m membership.Host) bool { return m.Run == run })
}
