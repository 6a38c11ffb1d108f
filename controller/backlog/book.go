// Package backlog owns the backlogs of all groups and the publish rates of all queues, as the cluster has them. It
// combines three inputs: the extents that each group has not consumed, the last seqs of these extents on their stores,
// and the progress of the group, from the owners of its shares or from checkpoints. So a group without consumers, and a
// share without an owner, have a backlog, too.
package backlog

import (
	"maps"
	"slices"
	"sync"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/backlog"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// Group is a group as the controller's rounds know it.
type Group struct {
	metadata.GroupRecord
	Pending []core.ExtentID // extents that it has not consumed to the end
}

// book is what is known. The collector writes most of it, rounds of the controller tell it which groups there are. Safe
// for concurrent use.
type book struct {
	mu      sync.Mutex
	queues  map[core.QueueID]*queue
	groups  map[core.GroupID]*group
	tails   map[core.ExtentID]tail // of extents without an end
	dirty   map[core.QueueID]struct{}
	looks   map[share]look             // shares whose owner is to look at a message
	letters map[core.QueueID]uint64    // messages that the dead letter queues of groups hold
	told    map[core.GroupID]struct{}  // groups whose retries hosts were told last
	left    map[core.GroupID]time.Time // of them before, those that another controller counts now; and since when
	live    map[core.HostID]core.RunID
	moving  map[core.QueueID]struct{} // queues that were published to lately
	series  series
	since   time.Time // of this controller, or when it took queues over last: what older extents hold was published before
	swept   time.Time // when it was looked last for groups that nobody tells of
	ended   time.Time // of the last round; zero: there was none
	rounds  uint64
}

type share struct {
	group  core.GroupID
	extent core.ExtentID
}

// queue is what is known of a queue that has live extents.
type queue struct {
	id      core.QueueID
	path    string // "" while its record was not read
	builtIn bool   // it belongs to a group
	groups  []*group
	counted bool                       // its groups have been counted
	seen    map[core.ExtentID]position // how far its own extents went when they were looked at last
	grown   position                   // in all, since this controller began
	unnamed position                   // of it, what was stored before the path was known
	rate    meter
}

// position is a number of messages, and how many bytes they have.
type position struct{ messages, bytes uint64 }

// unseen is the position of an extent that was there when this controller began, and of which no store has said how far
// it goes.
var unseen = position{messages: ^uint64(0)}

// group is what is known of a group.
type group struct {
	metadata.GroupRecord
	pending []core.ExtentID // oldest first
	parts   map[core.ExtentID]*part
	hosts   map[core.HostID]paced
	depth   backlog.Depth
	owners  []core.HostID // of its shares, without those of the retry queue alone
	counted uint32        // extents of depth
	unknown uint32        // extents that could not be counted, at least not to their end
}

// paced is what one owner says of a group.
type paced struct {
	ackRate float64
	opened  int64
}

// look is what an owner is to look at in a share, and since when.
type look struct {
	asked time.Time // last; zero: not yet
	last  core.Seq  // of the extent: a new owner may not know how far it goes
}

// part is how far a group is with an extent.
type part struct {
	backlog.Progress
	host    core.HostID // the owner that said so; "": its checkpoints say so
	run     core.RunID
	counter uint64 // of the owner's assignment: what an older owner says counts no more
	asleep  bool
	reading bool
	fresh   bool // nobody has computed with what this owner says: it was another one before
	orphan  bool // who said so is not there any more: its checkpoints are to be read
	at      time.Time
}

func newBook(most int, now time.Time) *book {
	return &book{
		since: now, queues: make(map[core.QueueID]*queue), groups: make(map[core.GroupID]*group), tails: make(map[core.ExtentID]tail), dirty: make(map[core.QueueID]struct{}),
		looks: make(map[share]look), letters: make(map[core.QueueID]uint64), told: make(map[core.GroupID]struct{}), left: make(map[core.GroupID]time.Time),
		moving: make(map[core.QueueID]struct{}), series: newSeries(most), swept: now,
	}
}

// keepPart is for how long what an owner says is kept of an extent that is not among those that the group has yet to
// consume: it may become one.
const keepPart = time.Minute

// setGroups takes over the groups of a queue that has live extents.
func (b *book) setGroups(id core.QueueID, groups []Group, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.queues[id]
	if q == nil {
		q = &queue{id: id, seen: make(map[core.ExtentID]position)}
		b.queues[id] = q
	}
	old := q.groups
	q.groups = make([]*group, 0, len(groups))
	for _, r := range groups {
		g := b.groupLocked(r.ID)
		g.GroupRecord, g.pending = r.GroupRecord, slices.SortedFunc(slices.Values(r.Pending), compareExtents)
		q.groups = append(q.groups, g)
		if _, known := b.letters[g.DLQ]; !known && !g.DLQ.IsZero() {
			b.letters[g.DLQ] = 0
			b.dirty[g.DLQ] = struct{}{}
		}
		for e, p := range g.parts {
			if _, pending := slices.BinarySearchFunc(g.pending, e, compareExtents); !pending && now.Sub(p.at) > keepPart {
				delete(g.parts, e)
				delete(b.looks, share{g.ID, e})
			}
		}
	}
	for _, g := range old {
		if !slices.Contains(q.groups, g) {
			b.dropLocked(g)
		}
	}
	b.dirty[id] = struct{}{}
}

func compareExtents(a, b core.ExtentID) int { return slices.Compare(a.ID[:], b.ID[:]) }

// groupLocked is a group, which may be one that only an owner has told of so far.
func (b *book) groupLocked(id core.GroupID) *group {
	g := b.groups[id]
	if g == nil {
		g = &group{parts: make(map[core.ExtentID]*part), hosts: make(map[core.HostID]paced)}
		b.groups[id] = g
	}
	return g
}

func (b *book) dropLocked(g *group) {
	delete(b.groups, g.ID)
	delete(b.told, g.ID)
	delete(b.letters, g.DLQ)
	for e := range g.parts {
		delete(b.looks, share{g.ID, e})
	}
}

// leaveLocked forgets all of a group but what owners say.
func (b *book) leaveLocked(g *group) {
	_, told := b.told[g.ID]
	b.dropLocked(g)
	b.groups[g.ID] = &group{parts: g.parts, hosts: g.hosts}
	if told {
		b.told[g.ID] = struct{}{}
	}
}

// dropQueue forgets a queue that has no live extents any more. One that another controller is responsible for is left:
// it may come back, and owners do not tell again what has not changed.
func (b *book) dropQueue(id core.QueueID, left bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.queues[id]
	if q == nil {
		return
	}
	for _, g := range q.groups {
		if left {
			b.leaveLocked(g)
		} else {
			b.dropLocked(g)
		}
	}
	delete(b.queues, id)
	delete(b.dirty, id)
	delete(b.moving, id)
	b.series.drop(id)
}

// tookOver notes that queues may come that another controller has counted.
func (b *book) tookOver(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.since = now
}

// untoldAfter is when a count is dropped that an owner does not repeat, of a group that no round knows. Owners tell all
// they have every wholeEvery.
const untoldAfter = 2 * wholeEvery

// sweepLocked drops what owners do not tell any more of groups that no round knows.
func (b *book) sweepLocked(now time.Time) {
	if now.Sub(b.swept) < untoldAfter/10 {
		return
	}
	b.swept = now
	for id, g := range b.groups {
		if !g.ID.IsZero() {
			continue
		}
		maps.DeleteFunc(g.parts, func(_ core.ExtentID, p *part) bool { return now.Sub(p.at) > untoldAfter })
		if len(g.parts) == 0 {
			delete(b.groups, id)
		}
	}
}

// takeDirty answers the queues whose backlogs are to be computed again.
func (b *book) takeDirty() []core.QueueID {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]core.QueueID, 0, len(b.dirty))
	for id := range b.dirty {
		out = append(out, id)
	}
	clear(b.dirty)
	return out
}

func (b *book) touch(queues ...core.QueueID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range queues {
		b.dirty[id] = struct{}{}
	}
}

// setLive records the live output hosts. The progress of shares of other hosts is read from their checkpoints.
func (b *book) setLive(hosts []membership.Host) {
	live := make(map[core.HostID]core.RunID, len(hosts))
	for _, h := range hosts {
		live[h.ID] = h.Run
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	gone := false
	for id, run := range b.live {
		gone = gone || live[id] != run
	}
	b.live = live
	if !gone {
		return
	}
	for id, g := range b.groups {
		for host := range g.hosts {
			if _, there := live[host]; !there {
				delete(g.hosts, host)
			}
		}
		for _, p := range g.parts {
			if p.host != "" && live[p.host] != p.run {
				p.orphan = true
				b.dirty[g.Queue] = struct{}{}
			}
		}
		if g.ID.IsZero() { // no round knows of it
			maps.DeleteFunc(g.parts, func(_ core.ExtentID, p *part) bool { return p.orphan })
			if len(g.parts)+len(g.hosts) == 0 { // and nobody tells of it any more
				delete(b.groups, id)
			}
		}
	}
}

// report takes over what a run of an output host says.
func (b *book) report(host core.HostID, run core.RunID, groups []*pb.GroupCounts, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.live[host] != run {
		return
	}
	for _, c := range groups {
		raw, err := core.IDFromBytes(c.Group)
		if err != nil {
			continue
		}
		id := core.GroupID{ID: raw}
		g := b.groupLocked(id)
		if c.AckRate == 0 && c.BreakerOpen == 0 {
			delete(g.hosts, host)
		} else {
			g.hosts[host] = paced{c.AckRate, c.BreakerOpen}
		}
		for _, x := range c.Shares {
			extent, err := core.IDFromBytes(x.Extent)
			if err != nil {
				continue
			}
			g.take(core.ExtentID{ID: extent}, &part{
				host: host, run: run, counter: x.Counter, asleep: x.Asleep, reading: x.Reading, at: now,
				Progress: backlog.Progress{
					Settled: x.Settled, Ready: x.Ready, InFlight: x.InFlight, Blocked: x.Blocked, Retries: x.Retries,
					Delayed: backlog.Delayed{Publish: x.DelayedPublish, Retry: x.DelayedRetry, Group: x.DelayedGroup},
					Unread:  backlog.Class(x.Unread), Due: x.Due, Oldest: x.Oldest,
				},
			})
		}
		if !g.ID.IsZero() {
			b.dirty[g.Queue] = struct{}{}
		}
	}
}

// take takes over what an owner says, unless a later owner has said something.
func (g *group) take(extent core.ExtentID, p *part) {
	if old := g.parts[extent]; old == nil || old.orphan || old.counter <= p.counter {
		p.fresh = old == nil || old.host != p.host || old.run != p.run || old.fresh
		g.parts[extent] = p
	}
}

// setSaved takes over what checkpoints say, unless an owner has told since it was found that they are to be read.
func (b *book) setSaved(s share, p backlog.Progress, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.groups[s.group]
	if g == nil {
		return
	}
	if old := g.parts[s.extent]; old == nil || old.orphan || old.host == "" {
		g.parts[s.extent] = &part{Progress: p, at: now}
		b.dirty[g.Queue] = struct{}{}
	}
}
