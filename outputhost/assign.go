package outputhost

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
)

// relist asks the controller for the whole list of shares: at the start until it answers, then now and then. In between the
// controller pushes.
func (h *Host) relist(ctx context.Context) {
	wait := 50 * time.Millisecond
	for {
		err := h.askShares(ctx)
		pause := h.relistPause()
		if err != nil {
			h.log.Info("no list of shares yet", "err", err)
			pause = wait
			wait = min(2*wait, maxRelistRetry)
		} else {
			wait = 50 * time.Millisecond
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
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
	// maxRelistRetry is about how long a host that was cut off goes on delivering what others own by then.
	maxRelistRetry = time.Second
)

// askShares asks one controller after another.
func (h *Host) askShares(ctx context.Context) error {
	err := error(core.Errorf(core.CodeUnavailable, "no controller is known"))
	for _, c := range h.deps.Members.Hosts("controller") {
		h.mu.Lock()
		before := h.mu.version
		h.mu.Unlock()
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
	run, err := core.IDFromBytes(list.Run)
	if err != nil {
		return err
	}
	if self := h.deps.Members.Self(); run != self.Run.ID {
		return core.Errorf(core.CodeStale, "the list is for another run of this host")
	}
	select {
	case h.assigning <- struct{}{}:
		defer func() { <-h.assigning }()
	case <-ctx.Done():
		return core.Errorf(core.CodeDeadline, "another list of shares is still being applied: %w", context.Cause(ctx))
	}
	h.mu.Lock()
	older := list.Version < h.mu.version && h.mu.version != before
	if !older {
		h.mu.version = list.Version
	}
	h.mu.Unlock()
	if older {
		return nil
	}
	given := make(map[core.ExtentID]map[core.GroupID]bool)
	touched := make(map[*group]bool)
	var failed []error
	missing := make(gaps)
	sortChains(list.Assignments)
	h.setGaps(h.gapsIn(list.Assignments))
	for _, a := range list.Assignments {
		id, err := core.IDFromBytes(a.Group)
		if err != nil {
			return err
		}
		e, err := convert.Extent(a.Extent)
		if err != nil {
			return err
		}
		if given[e.ID] == nil {
			given[e.ID] = make(map[core.GroupID]bool)
		}
		given[e.ID][core.GroupID{ID: id}] = true
		if missing.before(core.GroupID{ID: id}, e) {
			continue
		}
		g, err := h.giveShare(ctx, e, a, core.GroupID{ID: id})
		if err != nil {
			missing.note(core.GroupID{ID: id}, e)
			failed = append(failed, err) // the others must not wait for it; the controller sends its list again
		}
		if g != nil {
			defer g.release()
			touched[g] = true
		}
	}
	h.dropOthers(given)
	h.setGaps(missing)
	for g := range touched {
		g.pump()
	}
	return errors.Join(failed...)
}

// giveShare resumes one share of the list; no group when that was deleted meanwhile.
func (h *Host) giveShare(ctx context.Context, e core.Extent, a *pb.Assignment, id core.GroupID) (*group, error) {
	g, err := h.groupOf(ctx, e.Queue, a.Name)
	switch {
	case core.CodeOf(err) == core.CodeNotFound:
		return nil, nil
	case err != nil:
		return nil, err
	case g.id != id: // deleted and made again
		g.release()
		return nil, nil
	}
	var holders []core.HostID
	for _, holder := range a.Holders {
		holders = append(holders, core.HostID(holder))
	}
	return g, g.addShare(ctx, e, a.Counter, holders)
}

// dropOthers gives up the shares that are not this host's any more. The list is the newest that was heard: another host owns them now, or
// nobody needs to.
func (h *Host) dropOthers(given map[core.ExtentID]map[core.GroupID]bool) {
	now := h.deps.Now()
	for _, g := range h.groupList() {
		var dropped []*share
		g.mu.Lock()
		for id, s := range g.mu.shares {
			if !given[id][g.id] {
				dropped = append(dropped, s)
			}
		}
		g.mu.Unlock()
		for _, s := range dropped {
			g.giveAway(s, now)
		}
	}
}
