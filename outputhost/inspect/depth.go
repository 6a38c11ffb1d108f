package inspect

import (
	"context"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/backlog"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/internal/lifecycle"
	"github.com/columbamq/columba/metadata"
)

// Depth counts the messages of a group's shares on this host: messages that were read by their state, the others by
// their seqs. Dead letters are not counted.
func (x *Inspector) Depth(ctx context.Context, g Group) (*pb.Depth, error) {
	unknown, err := x.updateLengths(ctx, g)
	if err != nil {
		return nil, err
	}
	out := &pb.Depth{Queue: g.Queue(), Group: g.Name(), UnknownExtents: uint32(len(unknown))}
	var delayed backlog.Delayed
	oldest := int64(0) // enqueue time, or due time, unix µs
	older := func(enqueued int64) {
		if enqueued > 0 && (oldest == 0 || enqueued < oldest) {
			oldest = enqueued
		}
	}
	var unseen []Share // of which nothing that was read is ready, but something that was not
	var lack []uint64  // how much that is
	var asleep []*timersAsleep
	now := x.host.Now()
	g.Lock()
	shares := g.Shares()
	out.Extents = uint32(len(shares))
	out.AckRate = g.AckRate(now)
	for _, s := range shares {
		d := s.Rules().Depth()
		unread := uint64(0)
		if !s.Reading().Retired {
			unread = s.Rules().Uncounted(s.Last())
		}
		out.InFlight += uint64(d.InFlight)
		delayed.Add(backlog.DelayedIn(d))
		out.Blocked += uint64(d.Blocked)
		out.Retries += retries(s, d, unread)
		out.Ready += uint64(d.Ready)
		if waits := timersWait(s); waits || s.Rules().KeptBack() {
			class := delayed.Of(unreadClass(s))
			*class += unread
			if asleepShare(s) && unread > 0 {
				asleep = append(asleep, &timersAsleep{s: s, class: class, unread: unread, known: s.Known(), upTo: s.LastOwed()})
			}
			unread = 0
		}
		out.Ready += unread
		if older(d.OldestReady); d.OldestReady == 0 && unread > 0 && !timers(s) && len(unseen) < ownTimes {
			unseen, lack = append(unseen, s), append(lack, unread)
		}
	}
	if state, since := g.Rules().Breaker(); state != dispatch.BreakerClosed {
		out.BreakerOpenMs = max(1, now.Sub(since).Milliseconds())
	}
	g.Unlock()
	x.countDue(ctx, g, asleep, now)
	for _, a := range asleep {
		due := min(a.due, a.unread)
		out.Ready, *a.class = out.Ready+due, *a.class-due
		if due > 0 {
			older(a.oldest)
		}
	}
	enqueued := make([]int64, len(unseen)) // unix µs; 0: it cannot be read
	looks, cancel := partOf(ctx)
	defer cancel()
	lifecycle.Each(lookAtOnce, unseen, func(i int, s Share) { enqueued[i] = x.enqueuedNext(looks, g, s) })
	g.Lock()
	for i, s := range unseen {
		if s.Rules().KeepsBack(enqueued[i], now) { // and so what is younger
			out.Ready, delayed.Group = out.Ready-lack[i], delayed.Group+lack[i]
		} else {
			older(enqueued[i])
		}
	}
	g.Unlock()
	out.Delayed, out.DelayedPublish, out.DelayedRetry, out.DelayedGroup = delayed.Sum(), delayed.Publish, delayed.Retry, delayed.Group
	if oldest > 0 {
		out.OldestReadyMs = max(0, (now.UnixMicro()-oldest)/1000)
	}
	return out, nil
}

// retries counts messages of a share that failed before, and are not at their end: of the retry queue all.
func retries(s Share, d dispatch.Depth, unread uint64) uint64 {
	if !s.Rules().IsReturning() {
		return uint64(d.Retries)
	}
	return unread + uint64(d.Ready+d.InFlight+d.Delayed+d.RetryQueueing+d.DeadLettering)
}

const (
	// lookAtOnce is how many questions to stores one look at a group has under way.
	lookAtOnce = 16
	// ownTimes is of how many shares, the oldest, the next message is read to see its age: later extents hold what is
	// younger, as a rule.
	ownTimes = 16
)

// updateLengths asks how far the extents of shares go that no read stream keeps known: the metadata for the ends of
// sealed ones, stores for the others. It answers those of which no store could tell.
func (x *Inspector) updateLengths(ctx context.Context, g Group) (unknown map[Share]bool, err error) {
	var open []Share
	var keys []metadata.Key
	g.Lock()
	for _, s := range g.Shares() {
		if r := s.Reading(); !r.Ended && (!r.Open || !r.Told || r.Failed) {
			open, keys = append(open, s), append(keys, metadata.SealKey(s.Extent().ID))
		}
	}
	g.Unlock()
	if len(open) == 0 {
		return nil, nil
	}
	ends, err := x.host.Seals(ctx, keys)
	if err != nil {
		return nil, err
	}
	ctx, cancel := partOf(ctx)
	defer cancel()
	failed := make([]error, len(open))
	lifecycle.Each(lookAtOnce, open, func(i int, s Share) {
		if seal, sealed := ends[keys[i]]; sealed && seal.State.HasEnd() {
			g.Sealed(s, seal)
		} else {
			failed[i] = x.UpdateLength(ctx, g, s)
		}
	})
	for i, err := range failed {
		if err == nil {
			continue
		}
		x.cfg.Log.Debug("no store answers with the length of an extent", "extent", open[i].Extent().ID, "group", g.Name(), "err", err)
		if unknown == nil {
			unknown = make(map[Share]bool)
		}
		unknown[open[i]] = true
	}
	return unknown, nil
}

// UpdateLength asks stores how far a share's extent goes.
func (x *Inspector) UpdateLength(ctx context.Context, g Group, s Share) error {
	last, _, _, err := x.readable(ctx, s.Extent(), g.ID())
	g.Lock()
	defer g.Unlock()
	if err != nil {
		s.Failed(err)
		return err
	}
	s.Reach(last)
	return nil
}

// timersWait reports whether the unread messages of a timer extent count as not due: the reader has read all due
// messages, or there is no reader.
func timersWait(s Share) bool { return timers(s) && !s.Reading().More }

// unreadClass is the delay that the unread messages of a share wait for: their own, a retry's, or the group's.
func unreadClass(s Share) backlog.Class {
	switch {
	case !timersWait(s):
		return backlog.DelayedGroup
	case s.Rules().IsReturning():
		return backlog.DelayedRetry
	}
	return backlog.DelayedPublish
}

// asleepShare reports whether no reader reads a timer extent: a store has to tell how many of its messages are due.
func asleepShare(s Share) bool { return timers(s) && !s.Reading().Open }

// timersAsleep are the timers of a share that nobody reads: those that are due are ready.
type timersAsleep struct {
	s      Share
	class  *uint64 // the part of the depth that counts them until they are due
	unread uint64
	known  []byte // what is done, or held
	upTo   core.Seq
	due    uint64   // at least, of what is not known
	oldest int64    // unix µs: since when the oldest of these has been due …
	first  core.Seq // … and that one
}

// countDue asks stores how many of them are due. Messages of stores that do not answer count as not due.
func (x *Inspector) countDue(ctx context.Context, g Group, all []*timersAsleep, now time.Time) {
	ctx, cancel := partOf(ctx)
	defer cancel()
	lifecycle.Each(lookAtOnce, all, func(_ int, a *timersAsleep) {
		g.Lock()
		stores := a.s.Stores(now)
		until := now
		if !a.s.Rules().IsReturning() { // delayed retries do not wait for the group's delay
			until = until.Add(-g.Delay()) // a message that was due by then was enqueued by then
		}
		id := a.s.Extent().ID
		g.Unlock()
		resp, err := x.listDue(ctx, stores, &pb.ListDueRequest{Extent: id.ID[:], UpTo: uint64(a.upTo), CountUntil: until.UnixMilli(), Known: a.known})
		if err != nil {
			x.cfg.Log.Debug("cannot count due messages", "extent", id, "group", g.Name(), "err", err)
			return
		}
		a.due, a.oldest, a.first = resp.Count, resp.Oldest, core.Seq(resp.OldestSeq)
	})
}

// enqueuedNext is the enqueue time, unix µs, of what the share would read next; 0 when it cannot be read.
func (x *Inspector) enqueuedNext(ctx context.Context, g Group, s Share) int64 {
	g.Lock()
	seq, known := s.Rules().ReadFrom(), s.Counted().next
	g.Unlock()
	if known.seq == seq && seq > 0 {
		return known.enqueued
	}
	enqueued, _, err := x.readOne(ctx, g, s, seq)
	if err != nil {
		x.cfg.Log.Debug("cannot read the age of a message", "extent", s.Extent().ID, "group", g.Name(), "seq", seq, "err", err)
		return 0
	}
	g.Lock()
	s.Counted().next = next{seq, enqueued}
	g.Unlock()
	return enqueued
}
