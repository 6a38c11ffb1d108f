package backlog

import (
	"iter"
	"slices"
	"time"

	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/backlog"
	"github.com/columbamq/columba/metadata"
)

// lacking is a share of which no owner has told how far it is.
type lacking struct {
	group  metadata.GroupRecord
	extent catalog.Extent
}

const (
	// staleAfter is when checkpoints of a share without an owner are read again of which messages are in flight or
	// delayed.
	staleAfter = time.Minute
	// aheadOf is of how many extents of a group, the oldest, an owner is asked for the age of the next message: others
	// hold what is younger, as a rule.
	aheadOf = 4
)

// compute counts the backlogs of a queue's groups again out of its live extents, and those of others that its groups
// read. It answers the shares whose checkpoints are to be read.
func (b *book) compute(id core.QueueID, extents iter.Seq[catalog.Extent], now time.Time) (out []lacking) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, dead := b.letters[id]; dead {
		b.letters[id] = b.storedLocked(id, extents)
	}
	q := b.queues[id]
	if q == nil {
		return nil
	}
	pending := make(map[core.ExtentID]catalog.Extent)
	for _, g := range q.groups {
		for _, e := range g.pending {
			pending[e] = catalog.Extent{}
		}
	}
	grown := q.grown
	q.counted = true
	seen := make(map[core.ExtentID]position, len(q.seen))
	for e := range extents {
		if _, is := pending[e.ID]; is {
			pending[e.ID] = e
		}
		if e.Queue == id {
			counts, known := b.extentLocked(e)
			if e.Home.Kind == core.HomeOwn || e.Home.Kind == core.HomeMerged && e.Home.Queue != id {
				seen[e.ID] = b.growLocked(q, e, counts, known)
			}
		}
	}
	q.seen = seen
	if q.grown != grown {
		if _, moves := b.moving[id]; !moves {
			b.moving[id] = struct{}{}
			q.rate.begin(grown.messages, later(b.ended, b.since))
		}
		b.series.grow(q, position{q.grown.messages - grown.messages, q.grown.bytes - grown.bytes})
	}
	for _, g := range q.groups {
		out = append(out, b.computeLocked(g, pending, now)...)
	}
	return out
}

// storedLocked is how many messages a queue's own groups would read.
func (b *book) storedLocked(id core.QueueID, extents iter.Seq[catalog.Extent]) (n uint64) {
	for e := range extents {
		if e.Queue == id && e.Home.Kind == core.HomeOwn && e.State != core.ExtentRetired {
			counts, _ := b.extentLocked(e)
			n += backlog.Stored(counts)
		}
	}
	return n
}

// extentLocked is what counts of an extent; known: how far it goes is.
func (b *book) extentLocked(e catalog.Extent) (counts backlog.Extent, known bool) {
	if e.State.HasEnd() {
		return backlog.Extent{Last: e.L, Bytes: e.Bytes, Removed: e.Removed}, true
	}
	t, known := b.tails[e.ID]
	return backlog.Extent{Last: t.last, Bytes: t.bytes, Removed: e.Removed}, known
}

// growLocked counts what was stored in an extent since it was looked at last, and answers how far it is.
func (b *book) growLocked(q *queue, e catalog.Extent, counts backlog.Extent, known bool) position {
	was, before := q.seen[e.ID]
	is, old := position{uint64(counts.Last), counts.Bytes}, e.Created.Before(b.since)
	switch {
	case !known && before:
		return was
	case !known && old:
		return unseen
	case !known:
		return position{}
	case was == unseen, !before && old:
		return is // it was stored before this controller began
	case is.messages <= was.messages:
		return was
	}
	q.grown.messages += is.messages - was.messages
	q.grown.bytes += is.bytes - min(was.bytes, is.bytes)
	return is
}

// computeLocked counts one group's backlog.
func (b *book) computeLocked(g *group, extents map[core.ExtentID]catalog.Extent, now time.Time) (out []lacking) {
	g.depth, g.owners, g.counted, g.unknown = backlog.Depth{}, g.owners[:0], 0, 0
	ahead := 0 // extents with messages that nobody has read
	for _, id := range g.pending {
		e := extents[id]
		if e.ID.IsZero() || e.State == core.ExtentRetired || !e.Home.ReadBy(g.ID) {
			continue // gone since the last round
		}
		counts, known := b.extentLocked(e)
		p := g.parts[id]
		if p == nil || p.orphan || p.host == "" && p.InFlight+p.Delayed.Sum() > 0 && now.Sub(p.at) > staleAfter {
			out = append(out, lacking{g.GroupRecord, e})
		}
		if p == nil {
			g.unknown++
			continue
		}
		if !known {
			g.unknown++
		}
		g.counted++
		is := p.Progress
		if is.Unread == backlog.Ready && e.Kind != core.KindTimer && e.Queue == g.Queue && now.Sub(e.Created) < g.Spec.Delay {
			is.Unread = backlog.DelayedGroup // all of it is too young for the group
		}
		d := backlog.Of(counts, is)
		if e.Queue == g.Retry {
			d.Retries = d.Messages() - d.Blocked
		} else if p.host != "" && !p.orphan && !slices.Contains(g.owners, p.host) {
			g.owners = append(g.owners, p.host)
		}
		if d.Ready > 0 && d.Oldest == 0 && e.Kind != core.KindTimer && !p.reading {
			d.Oldest = e.Created.UnixMicro() // it is no older
		}
		g.depth.Add(d)
		b.lookLocked(share{g.ID, id}, p, is.Unread, e.Kind, counts.Last, backlog.Unread(counts, is), &ahead, now)
	}
	return out
}

const (
	// manyUnread is from how many messages on that an owner has yet to read their age matters although it reads on.
	manyUnread = 1000
	// restsAfter is when an owner that reads on and has told nothing new is asked for the age all the same.
	restsAfter = 10 * time.Second
)

// lookLocked decides whether an owner is asked to look at a message. ahead counts the extents of the group with
// messages that nobody has read.
func (b *book) lookLocked(key share, p *part, class backlog.Class, kind core.ExtentKind, last core.Seq, unread uint64, ahead *int, now time.Time) {
	asks := false
	switch {
	case p.host == "" || p.orphan || unread == 0:
	case kind == core.KindTimer:
		asks = p.asleep
	case class == backlog.Ready:
		*ahead++
		asks = *ahead <= aheadOf && p.Oldest == 0 && (!p.reading || unread >= manyUnread || now.Sub(p.at) > restsAfter)
	}
	if asks {
		l := b.looks[key]
		if l.last = last; p.fresh { // another owner has not been asked yet
			l.asked = time.Time{}
		}
		b.looks[key] = l
	} else {
		delete(b.looks, key)
	}
	p.fresh = false
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
