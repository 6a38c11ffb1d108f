package outputhost

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/backlog"
	"github.com/columbamq/columba/metadata"
)

// depth counts the messages of a group's shares on this host: what was read, as the rules know it; the rest by seqs. The dead letters are
// not its shares'.
func (g *group) depth(ctx context.Context) (*pb.Depth, error) {
	unknown, err := g.lookForLengths(ctx)
	if err != nil {
		return nil, err
	}
	out := &pb.Depth{Queue: g.queuePath, Group: g.name, UnknownExtents: uint32(len(unknown))}
	var delayed backlog.Delayed
	oldest := int64(0) // enqueue time, or due time, unix µs
	older := func(enqueued int64) {
		if enqueued > 0 && (oldest == 0 || enqueued < oldest) {
			oldest = enqueued
		}
	}
	var unseen []*share // of which nothing that was read is ready, but something that was not
	var lack []uint64   // how much that is
	var asleep []*timersAsleep
	now := g.h.deps.Now()
	g.mu.Lock()
	out.Extents = uint32(len(g.mu.shares))
	out.AckRate = g.mu.acks.PerSecond(g.mu.rules.Counters().Acked, now)
	for _, s := range g.orderedLocked() {
		d := s.rules.Depth()
		unread := uint64(0)
		if !s.retired {
			unread = s.rules.Uncounted(s.last)
		}
		out.InFlight += uint64(d.InFlight)
		delayed.Add(backlog.DelayedIn(d))
		out.Blocked += uint64(d.Blocked)
		out.Ready += uint64(d.Ready)
		if waits := s.timersWaitLocked(); waits || s.rules.KeptBack() {
			class := delayed.Of(s.unreadClassLocked())
			*class += unread
			if s.asleepLocked() && unread > 0 {
				asleep = append(asleep, &timersAsleep{s: s, class: class, unread: unread, known: s.knownLocked(), upTo: s.lastOwedLocked()})
			}
			unread = 0
		}
		out.Ready += unread
		if older(d.OldestReady); d.OldestReady == 0 && unread > 0 && !s.timers() && len(unseen) < ownTimes {
			unseen, lack = append(unseen, s), append(lack, unread)
		}
	}
	if since, ok := g.mu.rules.Stalled(); ok {
		out.StalledMs = max(1, now.Sub(since).Milliseconds())
	}
	g.mu.Unlock()
	g.countDue(ctx, asleep, now)
	for _, x := range asleep {
		due := min(x.due, x.unread)
		out.Ready, *x.class = out.Ready+due, *x.class-due
		if due > 0 {
			older(x.oldest)
		}
	}
	enqueued := g.enqueuedNext(ctx, unseen)
	g.mu.Lock()
	for i, s := range unseen {
		if s.rules.KeepsBack(enqueued[i], now) { // and so what is younger
			out.Ready, delayed.Group = out.Ready-lack[i], delayed.Group+lack[i]
		} else {
			older(enqueued[i])
		}
	}
	g.mu.Unlock()
	out.Delayed, out.DelayedPublish, out.DelayedRetry, out.DelayedGroup = delayed.Sum(), delayed.Publish, delayed.Retry, delayed.Group
	if oldest > 0 {
		out.OldestReadyMs = max(0, (now.UnixMicro()-oldest)/1000)
	}
	return out, nil
}

const (
	// lookAtOnce is how many questions to stores one look at a group has under way.
	lookAtOnce = 16
	// ownTimes is of how many shares, the oldest, the next message is read to see its age: later extents hold what is younger, as a rule.
	ownTimes = 16
)

// lookForLengths asks how far the extents of shares go that no reader keeps known: the metadata for the ends, stores for the others. It
// answers those of which no store could tell.
func (g *group) lookForLengths(ctx context.Context) (unknown map[*share]bool, err error) {
	var open []*share
	var keys []metadata.Key
	g.mu.Lock()
	for _, s := range g.orderedLocked() {
		if told := s.reader != nil && s.reader.told && s.misses == 0; !s.end && !told {
			open, keys = append(open, s), append(keys, metadata.SealKey(s.extent.ID))
		}
	}
	g.mu.Unlock()
	if len(open) == 0 {
		return nil, nil
	}
	ends, err := g.h.ends(ctx, keys)
	if err != nil {
		return nil, err
	}
	failed := make([]error, len(open))
	var calls errgroup.Group
	calls.SetLimit(lookAtOnce)
	for i, s := range open {
		if seal, sealed := ends[keys[i]]; sealed && seal.State.HasEnd() {
			g.ended(s, seal)
			continue
		}
		calls.Go(func() error {
			failed[i] = g.lookFor(ctx, s)
			return nil
		})
	}
	calls.Wait() // no function fails
	for i, err := range failed {
		if err == nil {
			continue
		}
		g.h.log.Debug("no store tells how far an extent goes", "extent", open[i].extent.ID, "group", g.name, "err", err)
		if unknown == nil {
			unknown = make(map[*share]bool)
		}
		unknown[open[i]] = true
	}
	return unknown, nil
}

// lookFor asks stores how far a share's extent goes.
func (g *group) lookFor(ctx context.Context, s *share) error {
	last, _, _, err := g.h.readable(ctx, s.extent, g.id)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		s.trouble = err
		return err
	}
	s.last = max(s.last, last)
	return nil
}

// timersWaitLocked reports whether the unread messages of a timer extent count as not due: the reader has read all that is due, or there is no reader.
func (s *share) timersWaitLocked() bool { return s.timers() && (s.reader == nil || !s.reader.more) }

// unreadClassLocked is what the unread messages of a share wait for: that they are due, or the group's delay.
func (s *share) unreadClassLocked() backlog.Class {
	switch {
	case !s.timersWaitLocked():
		return backlog.DelayedGroup
	case s.rules.IsReturning():
		return backlog.DelayedRetry
	}
	return backlog.DelayedPublish
}

// asleepLocked reports whether no reader reads a timer extent: a store has to tell how many of its messages are due.
func (s *share) asleepLocked() bool { return s.timers() && s.reader == nil }

// timersAsleep are the timers of a share that nobody reads: those that are due are ready.
type timersAsleep struct {
	s      *share
	class  *uint64 // the part of the depth that counts them until they are due
	unread uint64
	known  []byte // what is done, or held
	upTo   core.Seq
	due    uint64   // at least, of what is not known
	oldest int64    // unix µs: since when the oldest of these has been due …
	first  core.Seq // … and that one
}

// countDue asks stores how many of them are due. What cannot be asked counts as not due.
func (g *group) countDue(ctx context.Context, all []*timersAsleep, now time.Time) {
	var calls errgroup.Group
	calls.SetLimit(lookAtOnce)
	for _, x := range all {
		calls.Go(func() error {
			g.mu.Lock()
			stores := x.s.sourcesLocked(now)
			until := now
			if !x.s.rules.IsReturning() { // the group's delay does not hold for what was parked
				until = until.Add(-g.mu.record.Spec.Delay) // what was due by then was enqueued by then
			}
			g.mu.Unlock()
			id := x.s.extent.ID
			resp, err := g.h.listDue(ctx, stores, &pb.ListDueRequest{Extent: id.ID[:], UpTo: uint64(x.upTo), CountUntil: until.UnixMilli(), Known: x.known})
			if err != nil {
				g.h.log.Debug("cannot count what is due", "extent", id, "group", g.name, "err", err)
				return nil
			}
			x.due, x.oldest, x.first = resp.Count, resp.Oldest, core.Seq(resp.OldestSeq)
			return nil
		})
	}
	calls.Wait() // no function fails
}

// next is the message that a share would read next, and when it was enqueued: of use as long as nobody reads the share.
type next struct {
	seq      core.Seq
	enqueued int64 // unix µs
}

// enqueuedNext are the enqueue times, unix µs, of what the shares would read next; 0 where it cannot be read.
func (g *group) enqueuedNext(ctx context.Context, shares []*share) []int64 {
	out := make([]int64, len(shares))
	var calls errgroup.Group
	calls.SetLimit(lookAtOnce)
	for i, s := range shares {
		calls.Go(func() error {
			out[i] = g.enqueuedNextOf(ctx, s)
			return nil
		})
	}
	calls.Wait() // no function fails
	return out
}

func (g *group) enqueuedNextOf(ctx context.Context, s *share) int64 {
	g.mu.Lock()
	seq, known := s.rules.ReadFrom(), s.next
	g.mu.Unlock()
	if known.seq == seq && seq > 0 {
		return known.enqueued
	}
	enqueued, _, err := g.readOne(ctx, s, seq)
	if err != nil {
		g.h.log.Debug("cannot read the age of a message", "extent", s.extent.ID, "group", g.name, "seq", seq, "err", err)
		return 0
	}
	g.mu.Lock()
	s.next = next{seq, enqueued}
	g.mu.Unlock()
	return enqueued
}

// measure notes how much the group has acknowledged so far.
func (g *group) measure(now time.Time) {
	g.mu.Lock()
	g.mu.acks.Note(g.mu.rules.Counters().Acked, now)
	g.mu.Unlock()
}
