package catalog

import (
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// Share is the work of one group on one extent.
type Share struct {
	Group  core.GroupID
	Extent core.ExtentID
}

// Decision gives a share to a run of an output host: an assignment, without the extent's tuple.
type Decision struct {
	Share
	Queue   core.QueueID // of the group
	Name    string       // of the group
	Chain   uint64       // the place of the extent in a chain; 0: it is in none
	Counter uint64       // 0: nobody has the share
	By      core.HostID
	ByRun   core.RunID
	Owner   HostRun
	Written time.Time // of its row
}

// DecisionOf is the decision that a row records.
func DecisionOf(r metadata.AssignmentRecord, written time.Time) Decision {
	return Decision{
		Share: Share{r.Group, r.Extent.ID}, Queue: r.Queue, Name: r.Name, Chain: r.Extent.Chain,
		Counter: r.Counter, By: r.By, ByRun: r.ByRun, Owner: HostRun{r.Owner, r.Run}, Written: written,
	}
}

// Precedence of the decision among those about the same share.
func (d Decision) Precedence() metadata.Precedence {
	return metadata.Precedence{Counter: d.Counter, By: d.By, Run: d.ByRun}
}

// owned is a share with its owner: it is in the list of its queue for that owner, and not shown there while it moves.
type owned struct {
	Decision
	list *list
	move *move // nil: the owner may be told
}

// Shares are the decisions about who owns which share, and the lists that tell the owners. A list is of one queue, for
// one run of an output host. Its counter rises with every change, so a list that was confirmed is sent again only when
// something of its queue changed. Safe for concurrent use.
type Shares struct {
	self HostRun // this controller
	mu   struct {
		sync.Mutex
		counter uint64 // of the list that changed last
		owned   map[Share]*owned
		owners  map[HostRun]*owner
		queues  map[core.QueueID]map[*list]struct{}
		epochs  map[core.GroupID]uint64 // of groups that were rewound
		moving  map[*owned]struct{}
		leftOut int // shares that did not fit into their lists
	}
}

// NewShares has no shares. Counters begin with the time, so mostly above those of controllers of before; a host that
// has a list with a higher one says so.
func NewShares(self HostRun, now time.Time) *Shares {
	x := &Shares{self: self}
	x.mu.counter = uint64(now.UnixMicro())
	x.mu.owned = make(map[Share]*owned)
	x.mu.owners = make(map[HostRun]*owner)
	x.mu.queues = make(map[core.QueueID]map[*list]struct{})
	x.mu.epochs = make(map[core.GroupID]uint64)
	x.mu.moving = make(map[*owned]struct{})
	return x
}

// Get is the decision about a share.
func (x *Shares) Get(k Share) Decision {
	x.mu.Lock()
	defer x.mu.Unlock()
	if d := x.mu.owned[k]; d != nil {
		return d.Decision
	}
	return Decision{}
}

// Holder is the run that may still have a share: its owner, or while it moves the one that it moves away from. Zero:
// nobody.
func (x *Shares) Holder(k Share) HostRun {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch d := x.mu.owned[k]; {
	case d == nil:
		return HostRun{}
	case d.move != nil:
		return d.move.from.owner
	default:
		return d.Owner
	}
}

// Count is how many shares have owners.
func (x *Shares) Count() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.mu.owned)
}

// Set makes a decision count, and answers the one it supersedes.
func (x *Shares) Set(d Decision) (old Decision) {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, old, _ = x.setLocked(d)
	return old
}

// SetAll is Set for several at once: no list shows some of them without the others. Owners that are well give their
// shares away first, and have until then for it.
func (x *Shares) SetAll(ds []Decision, well func(HostRun) bool, until time.Time) (old []Decision) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, d := range ds {
		now, last, under := x.setLocked(d)
		if under == nil && last.Counter > 0 && well(last.Owner) {
			from := x.listLocked(last.Owner, last.Queue)
			under = &move{from: from, counter: from.counter, until: until}
		}
		if under != nil { // else the owner of before, if there was one, was never told, or is not waited for
			x.moveLocked(now, under)
		}
		old = append(old, last)
	}
	return old
}

// TakeOver is Set for a decision that another controller may have made a moment ago: the holder of before gives the
// share away first, to a list of this controller, and has until then for it.
func (x *Shares) TakeOver(d Decision, holder HostRun, until time.Time) (old Decision) {
	x.mu.Lock()
	defer x.mu.Unlock()
	now, old, under := x.setLocked(d)
	if under == nil {
		from := x.listLocked(holder, d.Queue)
		x.raiseLocked(from)
		under = &move{from: from, counter: from.counter, until: until}
	}
	x.moveLocked(now, under)
	return old
}

// setLocked also answers the move that was under way.
func (x *Shares) setLocked(d Decision) (now *owned, old Decision, under *move) {
	old, under = x.dropLocked(d.Share)
	l := x.listLocked(d.Owner, d.Queue)
	now = &owned{Decision: d, list: l}
	x.mu.owned[d.Share] = now
	l.shares[now] = struct{}{}
	x.raiseLocked(l)
	return now, old, under
}

// Drop forgets a share that nobody needs any more.
func (x *Shares) Drop(k Share) (old Decision) {
	x.mu.Lock()
	defer x.mu.Unlock()
	old, _ = x.dropLocked(k)
	return old
}

func (x *Shares) dropLocked(k Share) (old Decision, under *move) {
	d := x.mu.owned[k]
	if d == nil {
		return old, nil
	}
	under = d.move
	x.endMoveLocked(d)
	delete(x.mu.owned, k)
	delete(d.list.shares, d)
	x.raiseLocked(d.list)
	return d.Decision, under
}

// Leave forgets all decisions about a queue, and its lists. Owners hear nothing: another controller is responsible for
// the queue.
func (x *Shares) Leave(queue core.QueueID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for l := range x.mu.queues[queue] {
		for d := range l.shares {
			x.endMoveLocked(d)
			delete(x.mu.owned, d.Share)
			delete(x.mu.epochs, d.Group)
		}
		clear(l.shares)
	}
	for l := range x.mu.queues[queue] { // nothing moves between them any more
		x.forgetEmptyLocked(l)
	}
}

// Counter is that of the list that changed last, at least this: lists from now on are newer than those of a controller
// that named it.
func (x *Shares) Counter(atLeast uint64) uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.counter = max(x.mu.counter, atLeast)
	return x.mu.counter
}

// Heard notes a counter that an output host names: lists from now on are newer.
func (x *Shares) Heard(counter uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.heardLocked(counter)
}

// mostHeard bounds the counters that hosts name: above it, lists have as many counters left as they will ever need,
// since each takes one. Anybody may call as a host. With a counter near the end of all, see convert.CheckCounter, hosts
// would refuse all lists from then on, also those of other controllers.
const mostHeard = 1 << 62

func (x *Shares) heardLocked(counter uint64) {
	x.mu.counter = max(x.mu.counter, min(counter, mostHeard))
}

// Touch has the owners of an extent's shares told of it again: something of it changed that lists tell.
func (x *Shares) Touch(extent core.ExtentID, groups []core.GroupID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, g := range groups {
		if d := x.mu.owned[Share{g, extent}]; d != nil {
			x.raiseLocked(d.list)
		}
	}
}

// SetEpoch has the owners of a group's shares told of the epoch that a rewind began; zero is that of a group that never
// was.
func (x *Shares) SetEpoch(queue core.QueueID, group core.GroupID, epoch uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.mu.epochs[group] == epoch {
		return
	}
	x.mu.epochs[group] = epoch
	for l := range x.mu.queues[queue] {
		x.raiseLocked(l)
	}
}

// ForgetEpoch of a group that is gone.
func (x *Shares) ForgetEpoch(group core.GroupID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.mu.epochs, group)
}
