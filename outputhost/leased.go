package outputhost

import (
	"context"
	"net"
	"slices"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/outputhost/lease"
)

// mayGive reports whether messages of the group may be handed out, by the lease of the controller that lists its shares.
func (g *group) mayGive(now time.Time) bool {
	l := g.lease.Load()
	return l == nil || l.MayGive(now)
}

// leaseHolds reports whether that lease goes on.
func (g *group) leaseHolds(now time.Time) bool {
	l := g.lease.Load()
	return l == nil || l.Holds(now)
}

// lister is the controller that lists the shares of the group; "": none does.
func (g *group) lister() core.HostID {
	if l := g.lease.Load(); l != nil {
		return l.Maker().Controller
	}
	return ""
}

// putUnder puts the groups of a queue under the lease of its list, once what the list lacks is dropped. It answers those that were under another one.
func (h *Host) putUnder(queue core.QueueID) (others []*group) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.putUnderLocked(queue)
}

func (h *Host) putUnderLocked(queue core.QueueID) (others []*group) {
	l := h.mu.lists[queue]
	if l == nil {
		return nil
	}
	for _, g := range h.mu.byQueue[queue] {
		if before := g.lease.Swap(l.lease); before != nil && before != l.lease {
			others = append(others, g)
		}
	}
	return others
}

// leased is what the leases need of this host.
type leased struct{ h *Host }

// Now implements lease.Owner.
func (x leased) Now() time.Time { return x.h.deps.Now() }

// Renew implements lease.Owner.
func (x leased) Renew(ctx context.Context, controller membership.Host) (r lease.Renewal, err error) {
	self := x.h.deps.Members.Self()
	resp, err := x.h.deps.Peers.Controller(controller.Address).RenewShares(ctx, connect.NewRequest(&pb.RenewSharesRequest{Owner: string(self.ID), Run: self.Run.ID[:]}))
	if err != nil {
		return r, convert.FromRPC(err)
	}
	r.Handovers, r.Held = resp.Msg.Handovers, resp.Msg.Held
	if len(resp.Msg.Run) > 0 {
		r.Run.ID, err = core.IDFromBytes(resp.Msg.Run)
	}
	return r, err
}

// Dial implements lease.Owner.
func (x leased) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return x.h.deps.Peers.Dial(ctx, network, addr)
}

// Changed implements lease.Owner.
func (x leased) Changed(l *lease.Lease) {
	for _, g := range x.h.groupList() {
		if g.lease.Load() == l {
			g.pump()
		}
	}
}

// Confirm implements lease.Owner: it gives up what a controller says is not this host's any more; new shares follow. Lists that the controller does
// not name, because another one is responsible for their queues, stay as they are.
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

// Move implements lease.Owner.
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

// Lists implements lease.Owner.
func (x leased) Lists(of *lease.Lease) (n int) {
	x.h.mu.Lock()
	defer x.h.mu.Unlock()
	for _, l := range x.h.mu.lists {
		if l.lease == of {
			n++
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
