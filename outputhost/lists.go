package outputhost

import (
	"slices"
	"sync/atomic"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/outputhost/lease"
)

// queueList is what the host knows of the newest list of a queue's shares:
//
//	unknown ──a list above the floor──▶ known ──a newer one──▶ known ──an empty one, and nobody applies one──▶ unknown; the floor is raised to it
//
// The fields are the host's mutex's but for the first two.
type queueList struct {
	applying chan struct{} // capacity 1: one list of the queue is applied at a time, which takes calls to the metadata
	changes  atomic.Uint64 // of the version: a call that applies an older one adds nothing more
	version  core.ListVersion
	lease    *lease.Lease // of the controller that made it
	shares   int32        // in the list
	appliers int32        // calls that apply it
	minority uint32       // of a minority's list, beside the queue's own: its number on this host; else 0
	resumed  bool         // all shares were
	shed     bool         // its shares were given up for those of a minority: see shed
}

// offered is a list of shares that came.
type offered struct {
	queue       core.QueueID
	version     core.ListVersion
	maker       lease.Maker
	assignments []*pb.Assignment
	shares      map[listedShare]uint64 // with the counters of their assignments
}

type listedShare struct {
	group  core.GroupID
	extent core.ExtentID
}

func offer(p *pb.AssignmentList) (o offered, err error) {
	if o.queue.ID, err = core.IDFromBytes(p.GetQueue()); err != nil {
		return o, err
	}
	if o.version, err = convert.ListVersion(p.GetVersion()); err != nil {
		return o, err
	}
	o.maker = lease.Maker{Controller: o.version.Controller, Run: o.version.Run, Minority: p.GetMinority()}
	o.assignments, o.shares = p.GetAssignments(), make(map[listedShare]uint64, len(p.GetAssignments()))
	for _, a := range o.assignments {
		var s listedShare
		if s.group.ID, err = core.IDFromBytes(a.Group); err != nil {
			return o, err
		}
		if s.extent.ID, err = core.IDFromBytes(a.GetExtent().GetId()); err != nil {
			return o, err
		}
		o.shares[s] = a.Counter
	}
	return o, nil
}

// accepted is a list that counts. The caller of accept releases it.
type accepted struct {
	offered
	h       *Host
	list    *queueList // nil: the queue was not known, and nothing of it is this host's
	changes uint64     // of the list's version, with this one
}

// minority is the number of a minority's list; 0: it is the queue's own.
func (a accepted) minority() uint32 {
	if a.list == nil {
		return 0
	}
	return a.list.minority
}

// current reports whether no newer list of the queue was accepted. Asked under a group's mutex before a share is added,
// it is exact: a newer list first counts as a change, and then drops what it lacks.
func (a accepted) current() bool { return a.list.changes.Load() == a.changes }

// newest is the version of the queue's list that counts now: that of this one, or of a newer one that came since.
func (a accepted) newest() core.ListVersion {
	if a.list == nil {
		return a.version
	}
	a.h.mu.Lock()
	defer a.h.mu.Unlock()
	return a.list.version
}

// accept drops, without waiting for anything, what a list lacks of its queue. newest is the version that counts; not ok
// when that is a newer one.
func (h *Host) accept(o offered) (a accepted, newest core.ListVersion, ok bool) {
	h.accepting <- struct{}{}
	a = accepted{offered: o, h: h}
	var others []*group // whose lease is another one from now on
	if newest, ok = a.adopt(); ok {
		h.dropOthers(a)
		if o.maker.Minority {
			h.shed(o.queue)
		}
		others = h.putUnder(o.queue)
	}
	<-h.accepting
	for _, g := range others {
		g.pump()
	}
	return a, newest, ok
}

// adopt makes the list that of its queue, unless there is a newer one.
func (a *accepted) adopt() (newest core.ListVersion, ok bool) {
	h := a.h
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.listLocked(a.queue, a.maker)
	switch {
	case l == nil && len(a.shares) == 0: // and so it is
		h.raiseFloorLocked(a.version)
		return a.version, true
	case l == nil && a.version.Compare(h.mu.floor) <= 0:
		return h.mu.floor, false
	case l == nil:
		l = &queueList{applying: make(chan struct{}, 1)}
		if a.maker.Minority {
			h.mu.minorities++
			l.minority = h.mu.minorities
		}
		h.keepListLocked(a.queue, l)
	case a.version.Compare(l.version) < 0:
		return l.version, false
	}
	if a.version != l.version || l.lease == nil || a.maker.Minority && !l.lease.Holds(h.deps.Now()) {
		l.changes.Add(1)
		l.resumed = false
		l.lease = h.leases.Of(a.maker)
	}
	l.version, l.shares, l.shed = a.version, int32(len(a.shares)), false
	l.resumed = l.resumed || l.shares == 0
	l.appliers++
	a.list, a.changes = l, l.changes.Load()
	return a.version, true
}

// release lets go of a list that was accepted.
func (a accepted) release() {
	if a.list == nil {
		return
	}
	a.h.mu.Lock()
	defer a.h.mu.Unlock()
	if a.list.appliers--; a.list.appliers == 0 && a.list.shares == 0 {
		a.h.forgetListLocked(a.queue, a.list)
		a.h.raiseFloorLocked(a.list.version)
	}
}

// resumed notes that all shares of the list were resumed.
func (a accepted) resumed() {
	a.h.mu.Lock()
	defer a.h.mu.Unlock()
	a.list.resumed = a.list.resumed || a.current()
}

// raiseFloorLocked notes the version of a list that is forgotten: a list of an unknown queue has to be newer, or it
// could be one of before on a long way.
func (h *Host) raiseFloorLocked(v core.ListVersion) {
	if v.Compare(h.mu.floor) > 0 {
		h.mu.floor = v
	}
}

// known is the version of a queue's list; of a queue without one, the floor. whole: all shares of the list were
// resumed, and are here.
func (h *Host) known(queue core.QueueID) (v core.ListVersion, whole bool) {
	h.mu.Lock()
	l := h.mu.lists[queue]
	v, want, resumed := h.mu.floor, 0, true
	if l != nil {
		v, want, resumed = l.version, int(l.shares), l.resumed
	}
	groups := h.groupsOfLocked(queue)
	h.mu.Unlock()
	have := 0
	for _, g := range groups {
		g.mu.Lock()
		for _, s := range g.mu.shares {
			if s.minority == 0 {
				have++
			}
		}
		g.mu.Unlock()
	}
	return v, resumed && have == want
}

// versions are those of all lists.
func (h *Host) versions() map[core.QueueID]core.ListVersion {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make(map[core.QueueID]core.ListVersion, len(h.mu.lists))
	for queue, l := range h.mu.lists {
		out[queue] = l.version
	}
	return out
}

// dropOthers gives up the shares of a queue that are not this host's any more: another host owns them now, or nobody
// needs to. A share that another host owned in between, unnoticed here, is given up, too: that host may have settled or
// transferred any message of it, so nothing of it may be handed out or transferred here before it is resumed anew.
func (h *Host) dropOthers(a accepted) {
	if a.maker.Minority && a.list == nil {
		return
	}
	now := h.deps.Now()
	for _, g := range h.groupsOf(a.queue) {
		for _, s := range slices.Backward(g.others(a)) { // none of a chain must begin while earlier ones are gone already
			g.giveAway(s, now)
		}
	}
}

// others are the shares that a list of the group's queue lacks, or names by another assignment, in the order of the
// chain. The shares behind one that is to be resumed wait for it.
func (g *group) others(a accepted) (out []*share) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.orderedLocked() {
		counter, listed := a.shares[listedShare{g.id, s.extent.ID}]
		ofList := s.minority == a.minority()
		if ofList && listed && counter == s.generation || !ofList && !listed { // another list has it
			continue
		}
		if gap := lower(g.mu.gap, s.extent.Chain); listed && gap != g.mu.gap {
			g.mu.gap, g.mu.reorder = gap, true
		}
		out = append(out, s)
	}
	return out
}

// groupsOf a queue that are loaded.
func (h *Host) groupsOf(queue core.QueueID) []*group {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.groupsOfLocked(queue)
}
