package outputhost

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/backlog"
)

const (
	// maxLooks bounds the shares that one CountShares reads messages of.
	maxLooks = 256
	// countPage is about how many shares one answer of CountShares has.
	countPage = 5000
	// looksTimeout bounds the reading; what was not read in time is told without its age.
	looksTimeout = 2 * time.Second
)

// counts numbers the looks at the counts of shares. A share that has changed since the look before carries the number of the look that found it, so
// each controller is told what has changed since the number that it knows.
type counts struct {
	mu       sync.Mutex // one look at a time; taken before a group's
	position uint64
}

// toldCounts are what was told of a share last.
type toldCounts struct {
	backlog.Progress
	at     uint64 // the look that found it so
	due    uint64 // of the delayed ones that nobody reads, as of the last question to a store
	oldest int64  // unix µs: since when the oldest of these has been due
	read   int64  // unix ns, when the next message was read for its age last
}

// toldGroup is what was told of a group last.
type toldGroup struct {
	ackRate float64
	stalled int64
	at      uint64
}

// CountShares answers the shares whose counts have changed since an earlier answer.
func (s *service) CountShares(ctx context.Context, req *connect.Request[pb.CountSharesRequest]) (*connect.Response[pb.CountSharesResponse], error) {
	m := req.Msg
	if len(m.Look) > maxLooks {
		return nil, convert.RPCError(core.Errorf(core.CodeTooLarge, "%d shares to look at in one call; at most %d are allowed", len(m.Look), maxLooks))
	}
	since, run := m.Since, s.h.deps.Members.Self().Run
	if !bytes.Equal(m.Run, run.ID[:]) {
		since = 0
	}
	if err := s.h.lookAtShares(ctx, m.Look); err != nil {
		return nil, convert.RPCError(err)
	}
	out := s.h.changedCounts(since, m.After)
	out.Run = run.ID[:]
	return connect.NewResponse(out), nil
}

// lookAtShares reads the next message of shares that nobody reads, for its age, and counts what is due of their delayed messages.
func (h *Host) lookAtShares(ctx context.Context, looks []*pb.CountSharesRequest_Look) error {
	ctx, cancel := context.WithTimeout(ctx, looksTimeout)
	defer cancel()
	now := h.deps.Now()
	var calls errgroup.Group
	calls.SetLimit(lookAtOnce)
	for _, look := range looks {
		group, err := core.IDFromBytes(look.Group)
		if err != nil {
			return err
		}
		extent, err := core.IDFromBytes(look.Extent)
		if err != nil {
			return err
		}
		h.mu.Lock()
		g := h.mu.groups[core.GroupID{ID: group}]
		h.mu.Unlock()
		if g == nil {
			continue
		}
		g.mu.Lock()
		s := g.mu.shares[core.ExtentID{ID: extent}]
		if s != nil {
			s.last = max(s.last, core.Seq(look.Last))
		}
		g.mu.Unlock()
		if s != nil {
			calls.Go(func() error {
				g.lookAt(ctx, s, now)
				return nil
			})
		}
	}
	calls.Wait() // no function fails
	return nil
}

// lookAt has a share know the age of its next message, or how many of its delayed ones are due.
func (g *group) lookAt(ctx context.Context, s *share, now time.Time) {
	if !s.timers() {
		g.enqueuedNextOf(ctx, s)
		g.mu.Lock()
		s.told.read = now.UnixNano()
		g.mu.Unlock()
		return
	}
	g.mu.Lock()
	x := &timersAsleep{s: s, known: s.knownLocked(), upTo: s.lastOwedLocked()}
	g.mu.Unlock()
	g.countDue(ctx, []*timersAsleep{x}, now)
	g.mu.Lock()
	s.told.due, s.told.oldest = x.due, x.oldest
	g.mu.Unlock()
}

// changedCounts are a page of the groups whose counts have changed since a look, after a group.
func (h *Host) changedCounts(since uint64, after []byte) *pb.CountSharesResponse {
	groups := h.groupList()
	slices.SortFunc(groups, func(a, b *group) int { return bytes.Compare(a.id.ID[:], b.id.ID[:]) })
	now := h.deps.Now()
	h.counts.mu.Lock()
	defer h.counts.mu.Unlock()
	h.counts.position++
	out := &pb.CountSharesResponse{Position: h.counts.position}
	shares := 0
	for _, g := range groups {
		if bytes.Compare(g.id.ID[:], after) <= 0 {
			continue
		}
		if c := g.changedCounts(since, h.counts.position, now); c != nil {
			out.Groups = append(out.Groups, c)
			shares += len(c.Shares)
		}
		if shares >= countPage {
			out.More = g.id.ID[:]
			break
		}
	}
	return out
}

// changedCounts are those of the group's shares that have changed since a look; at is the number of the present one. Nil: nothing has.
func (g *group) changedCounts(since, at uint64, now time.Time) *pb.GroupCounts {
	g.mu.Lock()
	defer g.mu.Unlock()
	was := &g.mu.told
	rate, stalled := g.mu.acks.PerSecond(g.mu.rules.Counters().Acked, now), int64(0)
	if when, ok := g.mu.rules.Stalled(); ok {
		stalled = when.UnixMicro()
	}
	if rate != was.ackRate || stalled != was.stalled {
		*was = toldGroup{rate, stalled, at}
	}
	var out *pb.GroupCounts
	if was.at > since {
		out = g.countsLocked()
	}
	for _, s := range g.mu.shares {
		if !s.asleepLocked() {
			s.told.due, s.told.oldest = 0, 0 // a consumer may take these; the next look counts anew
		}
		p, asleep := s.progressLocked(now)
		if reading := s.reader != nil; s.told.at == 0 || p != s.told.Progress || asleep != s.toldAsleep || reading != s.toldReading {
			s.told.Progress, s.toldAsleep, s.toldReading, s.told.at = p, asleep, reading, at
		}
		if s.told.at <= since {
			continue
		}
		if out == nil {
			out = g.countsLocked()
		}
		id := s.extent.ID
		out.Shares = append(out.Shares, &pb.ShareCounts{
			Extent: id.ID[:], Counter: s.generation, Settled: p.Settled, Ready: p.Ready, InFlight: p.InFlight, Blocked: p.Blocked,
			DelayedPublish: p.Delayed.Publish, DelayedRetry: p.Delayed.Retry, DelayedGroup: p.Delayed.Group, Unread: uint32(p.Unread), Due: p.Due, Oldest: p.Oldest, Asleep: asleep, Reading: s.toldReading,
		})
	}
	return out
}

func (g *group) countsLocked() *pb.GroupCounts {
	return &pb.GroupCounts{Group: g.id.ID[:], AckRate: g.mu.told.ackRate, Stalled: g.mu.told.stalled}
}

// progressLocked is how far the share is, as depth counts it; asleep: its unread messages are delayed, and nobody
// reads them when they are due.
func (s *share) progressLocked(now time.Time) (p backlog.Progress, asleep bool) {
	d := s.rules.Depth()
	p = backlog.Progress{
		Settled: s.rules.Consumed(), Ready: uint64(d.Ready), InFlight: uint64(d.InFlight), Delayed: backlog.DelayedIn(d),
		Blocked: uint64(d.Blocked), Oldest: d.OldestReady,
	}
	switch {
	case s.timersWaitLocked() || s.rules.KeptBack():
		p.Unread = s.unreadClassLocked()
		if asleep = s.asleepLocked(); asleep && s.told.due > 0 {
			p.Due = s.told.due
			if p.Oldest == 0 || s.told.oldest < p.Oldest {
				p.Oldest = s.told.oldest
			}
		}
	case p.Oldest == 0 && !s.timers() && s.next.enqueued > 0 && s.nextStandsLocked(now):
		if s.rules.KeepsBack(s.next.enqueued, now) { // and so what is younger
			p.Unread = backlog.DelayedGroup
		} else {
			p.Oldest = s.next.enqueued
		}
	}
	return p, asleep
}

// nextFor is for how long the age of a message stands for those behind it. These are younger, so a consumer that falls behind is not overlooked.
const nextFor = 15 * time.Second

// nextStandsLocked reports whether the message that was read for its age is the next one, or was a moment ago.
func (s *share) nextStandsLocked(now time.Time) bool {
	from := s.rules.ReadFrom()
	return s.next.seq == from || s.next.seq < from && now.UnixNano()-s.told.read < int64(nextFor)
}
