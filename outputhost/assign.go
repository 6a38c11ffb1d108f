package outputhost

import (
	"context"
	"errors"
	"net"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// relist asks the controller for the whole list of shares: at the start until it answers, then now and then. In between the
// controller pushes.
func (h *Host) relist(ctx context.Context) {
	wait := 50 * time.Millisecond
	for {
		err := h.askShares(ctx)
		pause := h.relistPause()
		if err != nil {
			h.log.Info("cannot get the list of shares from a controller; the host asks again", "err", err)
			pause = wait
			wait = min(2*wait, maxRelistRetry)
		} else {
			wait = 50 * time.Millisecond
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		case <-h.relisting:
		}
	}
}

// relistPause grows with the list, so that asking for it costs little.
func (h *Host) relistPause() time.Duration {
	shares := 0
	for _, g := range h.groupList() {
		g.mu.Lock()
		shares += len(g.mu.shares)
		g.mu.Unlock()
	}
	return min(h.cfg.RelistEvery+time.Duration(shares)*relistPerShare, maxRelist)
}

const (
	relistPerShare = 2 * time.Millisecond
	maxRelist      = 30 * time.Second
	maxRelistRetry = time.Second
)

// askShares asks one controller after another.
func (h *Host) askShares(ctx context.Context) error {
	err := error(core.Errorf(core.CodeUnavailable, "no controller is known"))
	for _, c := range h.deps.Members.Hosts("controller") {
		before := h.version()
		var list *pb.AssignmentList
		if list, err = h.askController(ctx, c.Address); err == nil {
			return h.assignAfter(ctx, list, before)
		}
	}
	return err
}

func (h *Host) askController(ctx context.Context, addr string) (*pb.AssignmentList, error) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.CallTimeout)
	defer cancel()
	self := h.deps.Members.Self()
	resp, err := h.deps.Peers.Controller(addr).ListAssignments(ctx, connect.NewRequest(&pb.ListAssignmentsRequest{Owner: string(self.ID), Run: self.Run.ID[:]}))
	if err != nil {
		return nil, convert.FromRPC(err)
	}
	return resp.Msg, nil
}

// assign makes the host's shares those of the list, unless it had a newer one.
func (h *Host) assign(ctx context.Context, list *pb.AssignmentList) error {
	return h.assignAfter(ctx, list, 0)
}

// assignAfter is assign for a list that was asked for when the newest one had version before. If that is still so, the answer is the
// truth even with a lower version: the controller has begun anew, with a clock behind that of the one before.
func (h *Host) assignAfter(ctx context.Context, list *pb.AssignmentList, before uint64) error {
	if ok, err := h.accept(list, before); err != nil || !ok {
		return err
	}
	if err := h.saveGiven(ctx); err != nil {
		return err
	}
	select {
	case h.assigning <- struct{}{}:
		defer func() { <-h.assigning }()
	case <-ctx.Done():
		return core.Errorf(core.CodeDeadline, "another list of shares is still being applied: %w", context.Cause(ctx))
	}
	return h.giveAll(ctx, list)
}

// given are the shares of a list.
type given map[core.ExtentID]map[core.GroupID]bool

// accept drops, without waiting for anything, what a list lacks; not ok when there was a newer one.
func (h *Host) accept(list *pb.AssignmentList, before uint64) (ok bool, err error) {
	run, err := core.IDFromBytes(list.Run)
	if err != nil {
		return false, err
	}
	if self := h.deps.Members.Self(); run != self.Run.ID {
		return false, core.Errorf(core.CodeStale, "the list is for another run of this host")
	}
	out := make(given)
	for _, a := range list.Assignments {
		group, err := core.IDFromBytes(a.Group)
		if err != nil {
			return false, err
		}
		extent, err := core.IDFromBytes(a.GetExtent().GetId())
		if err != nil {
			return false, err
		}
		id := core.ExtentID{ID: extent}
		if out[id] == nil {
			out[id] = make(map[core.GroupID]bool)
		}
		out[id][core.GroupID{ID: group}] = true
	}
	h.accepting <- struct{}{}
	defer func() { <-h.accepting }()
	h.mu.Lock()
	older := list.Version < h.mu.version && h.mu.version != before
	if !older {
		h.mu.version, h.mu.given = list.Version, out
	}
	h.mu.Unlock()
	if older {
		return false, nil
	}
	h.dropOthers(out)
	return true, nil
}

// version of the newest list of shares.
func (h *Host) version() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.version
}

// giveAll resumes the shares of a list that was accepted, until a newer one is: that one has all of them.
func (h *Host) giveAll(ctx context.Context, list *pb.AssignmentList) error {
	touched := make(map[*group]bool)
	defer func() {
		for g := range touched {
			g.pump()
			g.release()
		}
	}()
	defer h.dropGivenLate()
	var failed []error
	missing := make(gaps)
	sortChains(list.Assignments)
	h.setGaps(h.gapsIn(list.Assignments))
	for _, a := range list.Assignments {
		if h.version() != list.Version {
			return nil
		}
		e, err := convert.Extent(a.Extent)
		if err != nil {
			return err
		}
		id := core.GroupID{ID: core.ID(a.Group)}
		if missing.before(id, e) || h.hasShare(e.ID, id, a) {
			continue
		}
		g, err := h.giveShare(ctx, e, a, id)
		if err != nil {
			missing.note(id, e)
			failed = append(failed, err) // the others must not wait for it; the controller sends its list again
		}
		switch {
		case g == nil:
		case touched[g]:
			g.release()
		default:
			touched[g] = true
		}
	}
	h.setGaps(missing)
	return errors.Join(failed...)
}

// dropGivenLate drops what was given by a list when a newer one, which lacks it, had been accepted.
func (h *Host) dropGivenLate() {
	h.accepting <- struct{}{}
	defer func() { <-h.accepting }()
	h.mu.Lock()
	newest := h.mu.given
	h.mu.Unlock()
	h.dropOthers(newest)
}

// hasShare reports whether a share of a list is there; then it takes over where the extent is held.
func (h *Host) hasShare(extent core.ExtentID, group core.GroupID, a *pb.Assignment) bool {
	h.mu.Lock()
	g := h.mu.groups[group]
	h.mu.Unlock()
	if g == nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.mu.shares[extent]
	if s == nil || s.generation != a.Counter || a.Epoch > g.mu.record.Epoch || a.Removed > s.gone {
		return false
	}
	if len(a.Holders) > 0 {
		s.holders = holdersOf(a)
		g.touchLocked(s)
	}
	return true
}

// giveShare resumes one share of the list; no group when that was deleted meanwhile.
func (h *Host) giveShare(ctx context.Context, e core.Extent, a *pb.Assignment, id core.GroupID) (*group, error) {
	queue := e.Queue
	if len(a.Queue) > 0 {
		merged, err := core.IDFromBytes(a.Queue)
		if err != nil {
			return nil, err
		}
		queue = core.QueueID{ID: merged}
	}
	g, err := h.groupOf(ctx, queue, a.Name)
	switch {
	case core.CodeOf(err) == core.CodeNotFound:
		return nil, nil
	case err != nil:
		return nil, err
	case g.id != id: // deleted and made again
		g.release()
		return nil, nil
	}
	if err := g.reach(ctx, a.Epoch); err != nil {
		return g, err
	}
	gone, err := h.gone(ctx, e, a.Removed)
	if err != nil {
		return g, err
	}
	return g, g.addShare(ctx, e, a.Counter, holdersOf(a), a, gone)
}

// gone is what selections have taken of an extent, at least as many messages as are known of.
func (h *Host) gone(ctx context.Context, e core.Extent, known uint64) (dispatch.State, error) {
	if known == 0 {
		return dispatch.State{}, nil
	}
	row, _, err := metadata.Read[metadata.SealRecord](ctx, h.deps.Meta, metadata.Seals, metadata.SealKey(e.ID), metadata.One)
	if err != nil {
		return dispatch.State{}, core.Errorf(core.CodeOf(err), "look up what was removed of extent %s: %w", e.ID, err)
	}
	if row.RemovedCount < known {
		return dispatch.State{}, core.Errorf(core.CodeStale, "%d messages of extent %s are known here as removed, not %d; try again", row.RemovedCount, e.ID, known)
	}
	w, err := row.Gone()
	if err != nil {
		return dispatch.State{}, err
	}
	return dispatch.StateDone(w), nil
}

func holdersOf(a *pb.Assignment) (out []core.HostID) {
	for _, holder := range a.Holders {
		out = append(out, core.HostID(holder))
	}
	return out
}

// dropOthers gives up the shares that are not this host's any more. The list is the newest that was heard: another host owns them now, or
// nobody needs to.
func (h *Host) dropOthers(shares given) {
	now := h.deps.Now()
	for _, g := range h.groupList() {
		var dropped []*share
		g.mu.Lock()
		for id, s := range g.mu.shares {
			if !shares[id][g.id] {
				dropped = append(dropped, s)
			}
		}
		g.mu.Unlock()
		for _, s := range dropped {
			g.giveAway(s, now)
		}
	}
}

// leased is what the lease needs of this host.
type leased struct{ h *Host }

// Now implements lease.Owner.
func (x leased) Now() time.Time { return x.h.deps.Now() }

// Renew implements lease.Owner.
func (x leased) Renew(ctx context.Context, controller membership.Host) error {
	self := x.h.deps.Members.Self()
	_, err := x.h.deps.Peers.Controller(controller.Address).RenewShares(ctx, connect.NewRequest(&pb.RenewSharesRequest{Owner: string(self.ID), Run: self.Run.ID[:]}))
	return convert.FromRPC(err)
}

// Dial implements lease.Owner.
func (x leased) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return x.h.deps.Peers.Dial(ctx, network, addr)
}

// Changed implements lease.Owner.
func (x leased) Changed() {
	for _, g := range x.h.groupList() {
		g.pump()
	}
}

// Confirm implements lease.Owner: it gives up what a controller says is not this host's any more; new ones follow.
func (x leased) Confirm(ctx context.Context, controllers []membership.Host) error {
	err := error(core.Errorf(core.CodeUnavailable, "no controller is known"))
	for _, c := range controllers {
		before := x.h.version()
		cctx, cancel := context.WithTimeout(ctx, dispatch.OwnerLease)
		list, aerr := x.h.askController(cctx, c.Address)
		cancel()
		if err = aerr; err != nil {
			continue
		}
		if _, err = x.h.accept(list, before); err == nil {
			poke(x.h.relisting)
			return nil
		}
	}
	return err
}
