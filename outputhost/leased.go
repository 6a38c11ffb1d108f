package outputhost

import (
	"context"
	"net"
	"slices"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/outputhost/lease"
)

// leaseSet is the leases of the lists with a queue's shares: first that of the queue's own list, unless there is none
// or its shares were given up, then those of minorities. It does not change.
type leaseSet []*lease.Lease

// leases are those that the group is under.
func (g *group) leases() leaseSet {
	if x := g.under.Load(); x != nil {
		return *x
	}
	return nil
}

// mayGive reports whether messages of the group may be handed out, by the leases of the controllers that list its
// shares.
func (g *group) mayGive(now time.Time) bool {
	for _, l := range g.leases() {
		if !l.MayGive(now) {
			return false
		}
	}
	return true
}

// leaseHolds reports whether these leases go on.
func (g *group) leaseHolds(now time.Time) bool {
	return !slices.ContainsFunc(g.leases(), func(l *lease.Lease) bool { return !l.Holds(now) })
}

// lister is the controller that lists the shares of the group; "": none does.
func (g *group) lister() core.HostID {
	if all := g.leases(); len(all) > 0 {
		return all[0].Maker().Controller
	}
	return ""
}

// putUnder puts the groups of a queue under the leases of its lists, once what a list lacks is dropped. It answers
// those that were under others.
func (h *Host) putUnder(queue core.QueueID) (others []*group) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.putUnderLocked(queue)
}

func (h *Host) putUnderLocked(queue core.QueueID) (others []*group) {
	now := h.leasesOfLocked(queue)
	if now == nil { // an empty list was forgotten
		return nil
	}
	for _, g := range h.mu.byQueue[queue] {
		if before := g.under.Swap(h.underLocked(g, now)); before != nil && !slices.Equal(*before, *now) {
			others = append(others, g)
		}
	}
	return others
}

// underLocked is what a group of the queue with these leases is under.
func (h *Host) underLocked(g *group, all *leaseSet) *leaseSet {
	if l := h.mu.lists[g.queue]; l != nil && l.shed && g.once() {
		return &leaseSet{l.lease}
	}
	return all
}

// leasesOfLocked are those of the lists of a queue; nil: it has none.
func (h *Host) leasesOfLocked(queue core.QueueID) *leaseSet {
	l, minority := h.mu.lists[queue], h.mu.minority[queue]
	if l == nil && len(minority) == 0 {
		return nil
	}
	var x leaseSet
	if l != nil && !l.shed {
		x = append(x, l.lease)
	}
	for _, l := range minority {
		if l.shares > 0 {
			x = append(x, l.lease)
		}
	}
	if last := h.mu.leases; last == nil || !slices.Equal(*last, x) { // most queues are under the same ones
		h.mu.leases = &x
	}
	return h.mu.leases
}

// leased is what the leases need of this host. It implements lease.Owner.
type leased struct{ h *Host }

func (x leased) Now() time.Time { return x.h.deps.Now() }

func (x leased) Renew(ctx context.Context, controller membership.Host) (r lease.Renewal, err error) {
	self := x.h.deps.Members.Self()
	own, counter := x.h.openings.ask(controller.ID)
	resp, err := peer.Call(ctx, 0, x.h.deps.Peers.Controller(controller.Address).RenewShares, &pb.RenewSharesRequest{
		Owner: string(self.ID), Run: self.Run.ID[:], Openings: convert.OpeningsToProto(own), OpeningsCounter: counter,
	})
	if err != nil {
		return r, err
	}
	r.Handovers, r.Held, r.Minority = resp.Handovers, resp.Held, resp.Minority
	if len(resp.Run) > 0 {
		if r.Run.ID, err = core.IDFromBytes(resp.Run); err != nil {
			return r, err
		}
	}
	open, err := convert.OpeningsFromProto(resp.Openings)
	if err != nil {
		return r, err
	}
	x.h.openings.answered(controller.ID, r.Run, resp.OpeningsCounter, open, x.h.deps.Now())
	return r, nil
}

func (x leased) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return x.h.deps.Peers.Dial(ctx, network, addr)
}

func (x leased) Changed(l *lease.Lease) {
	for _, g := range x.h.groupList() {
		if slices.Contains(g.leases(), l) {
			g.pump()
		}
	}
}

// Confirm gives up what a controller says is not this host's any more; new shares follow. Lists that the controller
// does not name, because another one is responsible for their queues, stay as they are.
func (x leased) Confirm(ctx context.Context, controller membership.Host) (lease.Named, error) {
	h := x.h
	p := &pulled{controller: controller, named: make(lease.Named), use: h.giveUp}
	own := h.versions()
	if err := h.pullLists(ctx, p); err != nil {
		return nil, err
	}
	if err := h.fetch(ctx, p, p.unnamed(own)); err != nil {
		return nil, err
	}
	poke(h.relisting)
	return p.named, nil
}

func (x leased) Move(named lease.Named, to *lease.Lease) {
	x.h.accepting <- struct{}{} // a list that is being accepted first drops what it lacks
	defer func() { <-x.h.accepting }()
	x.h.mu.Lock()
	defer x.h.mu.Unlock()
	for queue, l := range x.h.mu.lists {
		if lease.MakerOf(l.version) == to.Maker() && (named == nil || named[queue] == l.version) {
			l.lease = to
			x.h.putUnderLocked(queue)
		}
	}
}

func (x leased) Lists(of *lease.Lease) (n int) {
	x.h.mu.Lock()
	defer x.h.mu.Unlock()
	for _, l := range x.h.mu.lists {
		if l.lease == of {
			n++
		}
	}
	for _, some := range x.h.mu.minority {
		for _, l := range some {
			if l.lease == of && l.shares > 0 {
				n++
			}
		}
	}
	return n
}

// unnamed are the queues of lists that the controller made, and did not name.
func (p *pulled) unnamed(own map[core.QueueID]core.ListVersion) (queues []core.QueueID) {
	for queue, version := range own {
		if _, named := p.named[queue]; !named && version.Controller == p.controller.ID {
			queues = append(queues, queue)
		}
	}
	slices.SortFunc(queues, func(a, b core.QueueID) int { return slices.Compare(a.ID[:], b.ID[:]) })
	return queues
}

// listLocked is what the host knows of a list of a queue: of the queue's own, or of that of a minority. nil: nothing.
func (h *Host) listLocked(queue core.QueueID, maker lease.Maker) *queueList {
	if !maker.Minority {
		return h.mu.lists[queue]
	}
	for _, l := range h.mu.minority[queue] {
		if l.lease.Maker() == maker {
			return l
		}
	}
	return nil
}

func (h *Host) keepListLocked(queue core.QueueID, l *queueList) {
	if l.minority == 0 {
		h.mu.lists[queue] = l
		return
	}
	h.mu.minority[queue] = append(h.mu.minority[queue], l)
}

func (h *Host) forgetListLocked(queue core.QueueID, l *queueList) {
	if l.minority == 0 {
		delete(h.mu.lists, queue)
		return
	}
	left := slices.DeleteFunc(slices.Clone(h.mu.minority[queue]), func(o *queueList) bool { return o == l })
	if h.mu.minority[queue] = left; len(left) == 0 {
		delete(h.mu.minority, queue)
	}
}

// shed gives up the shares of a queue's own list whose lease has ended, so that they do not hold up those of a
// minority: the messages of a group are handed out together. The host resumes them when a controller lists them again.
// The caller accepts a list.
func (h *Host) shed(queue core.QueueID) {
	h.mu.Lock()
	l := h.mu.lists[queue]
	if l == nil || l.shed || l.lease == nil || l.lease.Holds(h.deps.Now()) {
		h.mu.Unlock()
		return
	}
	l.shed, l.resumed = true, false
	l.changes.Add(1)
	h.mu.Unlock()
	h.giveUpOf(queue, 0)
}

// once reports whether the group delivers at most once. Such a group gets nothing from a minority, and keeps its shares
// and its lease.
func (g *group) once() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.record.Spec.Delivery == core.AtMostOnce
}

// giveUpOf gives up the shares of one list of a queue: of that of a minority, or of the queue's own one.
func (h *Host) giveUpOf(queue core.QueueID, minority uint32) {
	now := h.deps.Now()
	for _, g := range h.groupsOf(queue) {
		if minority == 0 && g.once() {
			continue
		}
		g.mu.Lock()
		all := slices.DeleteFunc(slices.Clone(g.orderedLocked()), func(s *share) bool { return s.minority != minority })
		g.mu.Unlock()
		for _, s := range slices.Backward(all) { // none of a chain must begin while earlier ones are gone already
			g.giveAway(s, now)
		}
	}
}

// End gives up the shares of the lists under a minority's lease. Their controller sends the lists again if they are
// still this host's.
func (x leased) End(of *lease.Lease) {
	h := x.h
	h.accepting <- struct{}{}
	h.mu.Lock()
	ended := make(map[*queueList]core.QueueID)
	for queue, some := range h.mu.minority {
		for _, l := range some {
			if l.lease == of {
				l.shares = 0
				l.changes.Add(1)
				h.forgetListLocked(queue, l)
				ended[l] = queue
			}
		}
	}
	h.mu.Unlock()
	var others []*group
	for l, queue := range ended {
		h.giveUpOf(queue, l.minority)
		others = append(others, h.putUnder(queue)...)
	}
	<-h.accepting
	for _, g := range others {
		g.pump()
	}
}
