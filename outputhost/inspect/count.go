package inspect

import (
	"bytes"
	"context"
	"slices"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/backlog"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/internal/lifecycle"
)

const (
	// MaxLooks bounds the shares that one CountShares reads messages of.
	MaxLooks = 256
	// countPage is about how many shares one answer of CountShares has.
	countPage = 5000
	// looksTimeout bounds the reading; what was not read in time is told without its age.
	looksTimeout = 2 * time.Second
)

// The looks at the counts of shares are numbered. A share that has changed since the look before carries the number of
// the look that found it, so each controller is answered the changes since the number that it knows.

// CountedShare is what the last look found of a share. The group's Lock guards it.
type CountedShare struct {
	progress        backlog.Progress
	at              uint64 // number of the look that found it so
	due             uint64 // messages of those that nobody reads, as of the last question to a store
	oldest          int64  // unix µs: since when the oldest of these has been due
	next            next
	read            int64 // unix ns, when next was read last
	asleep, reading bool
}

// next is the message that a share would read next, and when it was enqueued: of use as long as nobody reads the share.
type next struct {
	seq      core.Seq
	enqueued int64 // unix µs
}

// CountedGroup is what the last look found of a group. The group's Lock guards it.
type CountedGroup struct {
	ackRate float64
	opened  int64  // unix µs: since when the breaker is open; 0: it is closed
	at      uint64 // number of the look that found it so
}

// CountShares answers the shares whose counts have changed since an earlier answer.
func (x *Inspector) CountShares(ctx context.Context, req *pb.CountSharesRequest) (*pb.CountSharesResponse, error) {
	if len(req.Look) > MaxLooks {
		return nil, core.Errorf(core.CodeTooLarge, "%d shares to look at in one call; at most %d are allowed", len(req.Look), MaxLooks)
	}
	since, run := req.Since, x.host.Self().Run
	if !bytes.Equal(req.Run, run.ID[:]) {
		since = 0
	}
	if err := x.lookAtShares(ctx, req.Look); err != nil {
		return nil, err
	}
	out := x.changedCounts(since, req.After)
	out.Run = run.ID[:]
	return out, nil
}

// lookedAt is a share that a call looks at.
type lookedAt struct {
	Group
	Share
	longer bool // the caller says that the extent goes on behind what is known here
}

// lookAtShares reads the next message of shares that nobody reads, for its age, and counts what is due of their delayed
// messages.
func (x *Inspector) lookAtShares(ctx context.Context, looks []*pb.CountSharesRequest_Look) error {
	ctx, cancel := context.WithTimeout(ctx, looksTimeout)
	defer cancel()
	now := x.host.Now()
	var found []lookedAt
	for _, look := range looks {
		group, err := core.IDFromBytes(look.Group)
		if err != nil {
			return err
		}
		extent, err := core.IDFromBytes(look.Extent)
		if err != nil {
			return err
		}
		g := x.host.Loaded(core.GroupID{ID: group})
		if g == nil {
			continue
		}
		g.Lock()
		if s := g.Share(core.ExtentID{ID: extent}); s != nil {
			found = append(found, lookedAt{g, s, core.Seq(look.Last) > s.Last()})
		}
		g.Unlock()
	}
	lifecycle.Each(lookAtOnce, found, func(_ int, a lookedAt) {
		if a.longer { // a store has to say so: anybody may call, and what is never there would be waited for
			if err := x.UpdateLength(ctx, a.Group, a.Share); err != nil {
				x.cfg.Log.Debug("no store answers with the length of an extent", "extent", a.Extent().ID, "group", a.Name(), "err", err)
			}
		}
		x.lookAt(ctx, a.Group, a.Share, now)
	})
	return nil
}

// lookAt has a share know the age of its next message, or how many of its delayed ones are due.
func (x *Inspector) lookAt(ctx context.Context, g Group, s Share, now time.Time) {
	if !timers(s) {
		x.enqueuedNext(ctx, g, s)
		g.Lock()
		s.Counted().read = now.UnixNano()
		g.Unlock()
		return
	}
	g.Lock()
	a := &timersAsleep{s: s, known: s.Known(), upTo: s.LastOwed()}
	g.Unlock()
	x.countDue(ctx, g, []*timersAsleep{a}, now)
	g.Lock()
	s.Counted().due, s.Counted().oldest = a.due, a.oldest
	g.Unlock()
}

// changedCounts are a page of the groups whose counts have changed since a look, after a group.
func (x *Inspector) changedCounts(since uint64, after []byte) *pb.CountSharesResponse {
	groups := x.host.AllLoaded()
	compare := func(a, b core.GroupID) int { return bytes.Compare(a.ID[:], b.ID[:]) }
	slices.SortFunc(groups, func(a, b Group) int { return compare(a.ID(), b.ID()) })
	now := x.host.Now()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.position++
	out := &pb.CountSharesResponse{Position: x.mu.position}
	shares := 0
	for _, g := range groups {
		id := g.ID()
		if bytes.Compare(id.ID[:], after) <= 0 {
			continue
		}
		if c := changedCounts(g, since, x.mu.position, now); c != nil {
			out.Groups = append(out.Groups, c)
			shares += len(c.Shares)
		}
		if shares >= countPage {
			out.More = id.ID[:]
			break
		}
	}
	return out
}

// changedCounts are those of the group's shares that have changed since a look; at is the number of the present one.
// Nil: nothing has.
func changedCounts(g Group, since, at uint64, now time.Time) *pb.GroupCounts {
	g.Lock()
	defer g.Unlock()
	was := g.Counted()
	g.Rules().CountedRetries()
	rate, opened := g.AckRate(now), int64(0)
	if state, since := g.Rules().Breaker(); state != dispatch.BreakerClosed {
		opened = since.UnixMicro()
	}
	if rate != was.ackRate || opened != was.opened {
		*was = CountedGroup{rate, opened, at}
	}
	var out *pb.GroupCounts
	if was.at > since {
		out = countsOf(g)
	}
	for _, s := range g.Shares() {
		c := s.Counted()
		if !asleepShare(s) {
			c.due, c.oldest = 0, 0 // a consumer may take these; the next look counts anew
		}
		p, asleep := progress(s, now)
		if reading := s.Reading().Open; c.at == 0 || p != c.progress || asleep != c.asleep || reading != c.reading {
			c.progress, c.asleep, c.reading, c.at = p, asleep, reading, at
		}
		if c.at <= since {
			continue
		}
		if out == nil {
			out = countsOf(g)
		}
		id := s.Extent().ID
		out.Shares = append(out.Shares, &pb.ShareCounts{
			Extent: id.ID[:], Counter: s.Generation(), Settled: p.Settled, Ready: p.Ready, InFlight: p.InFlight, Blocked: p.Blocked,
			DelayedPublish: p.Delayed.Publish, DelayedRetry: p.Delayed.Retry, DelayedGroup: p.Delayed.Group, Unread: uint32(p.Unread), Due: p.Due, Oldest: p.Oldest, Asleep: asleep, Reading: c.reading,
			Retries: p.Retries,
		})
	}
	return out
}

func countsOf(g Group) *pb.GroupCounts {
	id, c := g.ID(), g.Counted()
	return &pb.GroupCounts{Group: id.ID[:], AckRate: c.ackRate, BreakerOpen: c.opened}
}

// progress is how far the share is, as Depth counts it; asleep: its unread messages are delayed, and nobody
// reads them when they are due.
func progress(s Share, now time.Time) (p backlog.Progress, asleep bool) {
	c, d := s.Counted(), s.Rules().Depth()
	p = backlog.Progress{
		Settled: s.Rules().Consumed(), Ready: uint64(d.Ready), InFlight: uint64(d.InFlight), Delayed: backlog.DelayedIn(d),
		Blocked: uint64(d.Blocked), Retries: uint64(d.Retries), Oldest: d.OldestReady,
	}
	switch {
	case timersWait(s) || s.Rules().KeptBack():
		p.Unread = unreadClass(s)
		if asleep = asleepShare(s); asleep && c.due > 0 {
			p.Due = c.due
			if p.Oldest == 0 || c.oldest < p.Oldest {
				p.Oldest = c.oldest
			}
		}
	case p.Oldest == 0 && !timers(s) && c.next.enqueued > 0 && nextIsCurrent(s, now):
		if s.Rules().KeepsBack(c.next.enqueued, now) { // and so what is younger
			p.Unread = backlog.DelayedGroup
		} else {
			p.Oldest = c.next.enqueued
		}
	}
	return p, asleep
}

// nextFor is for how long the age of a message stands for those behind it. These are younger, so a consumer that falls
// behind is not overlooked.
const nextFor = 15 * time.Second

// nextIsCurrent reports whether the message that was read for its age is the next one, or was a moment ago.
func nextIsCurrent(s Share, now time.Time) bool {
	from, c := s.Rules().ReadFrom(), s.Counted()
	return c.next.seq == from || c.next.seq < from && now.UnixNano()-c.read < int64(nextFor)
}
