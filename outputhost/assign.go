package outputhost

import (
	"cmp"
	"context"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/internal/lifecycle"
	"github.com/columbamq/columba/metadata"
)

// assign makes the host's shares of some queues those of the lists, but where it had a newer one.
func (h *Host) assign(ctx context.Context, req *pb.AssignRequest) (*pb.AssignResponse, error) {
	run, err := core.IDFromBytes(req.GetRun())
	if err != nil {
		return nil, err
	}
	if self := h.deps.Members.Self(); run != self.Run.ID {
		return nil, core.Errorf(core.CodeStale, "the lists are for another run of this host")
	}
	if req.GetComplete() {
		defer poke(h.relisting)
	}
	answers, err := h.apply(ctx, req.GetLists())
	if err != nil {
		return nil, err
	}
	out := &pb.AssignResponse{Lists: make([]*pb.ListAnswer, len(answers))}
	for i, a := range answers {
		out.Lists[i] = &pb.ListAnswer{Newest: convert.ListVersionToProto(a.newest), Failed: convert.ErrorToProto(a.failed)}
	}
	return out, nil
}

// listAnswer says what became of a list: which version counts, and why not all shares of it could be resumed, or those
// that it lacks not be saved.
type listAnswer struct {
	newest core.ListVersion
	failed error
}

// apply drops at once what the lists lack, makes it durable where these shares stand, and then resumes what is new.
// With an error the lists are to be sent again. A list is, too, if shares that it lacks could not be saved: its answer
// has no version then, for their new owner must not begin yet.
func (h *Host) apply(ctx context.Context, lists []*pb.AssignmentList) ([]listAnswer, error) {
	offers := make([]offered, len(lists))
	for i, l := range lists {
		var err error
		if offers[i], err = offer(l); err != nil {
			return nil, err
		}
	}
	answers := make([]listAnswer, len(lists))
	taken, of := make([]accepted, 0, len(lists)), make([]*listAnswer, 0, len(lists))
	var groups []*group
	for i, o := range offers {
		a, newest, ok := h.accept(o)
		if answers[i].newest = newest; ok {
			taken, of = append(taken, a), append(of, &answers[i])
			groups = append(groups, h.groupsOf(a.queue)...)
			defer a.release()
		}
	}
	unsaved := h.saveGiven(ctx, groups)
	lifecycle.Each(givesAtOnce, taken, func(i int, a accepted) {
		if of[i].failed = unsaved[a.queue]; of[i].failed == nil {
			of[i].failed = h.give(ctx, a)
		}
	})
	for i, a := range taken {
		of[i].newest = a.newest()
		if unsaved[a.queue] != nil {
			of[i].newest = core.ListVersion{}
		}
	}
	return answers, nil
}

// givesAtOnce bounds the lists of one call that are applied side by side: one whose metadata hang holds up no other.
const givesAtOnce = 8

// groupsAtOnce bounds the groups of one list whose shares are resumed side by side: each share takes calls to the
// metadata, and a queue may have thousands of groups.
const groupsAtOnce = 8

// give resumes the shares of a list that was accepted, until a newer one of its queue is: that one has all of them.
func (h *Host) give(ctx context.Context, l accepted) error {
	if len(l.assignments) == 0 {
		return nil
	}
	select {
	case l.list.applying <- struct{}{}:
		defer func() { <-l.list.applying }()
	case <-ctx.Done():
		return core.Errorf(core.CodeDeadline, "another list of shares of queue %s is still being applied: %w", l.queue, context.Cause(ctx))
	}
	sortChains(l.assignments)
	if !l.maker.Minority { // which lists no chain
		h.setGaps(l.queue, l.assignments)
	}
	var groups []*giving
	byID := make(map[core.GroupID]*giving)
	for _, a := range l.assignments {
		e, err := convert.Extent(a.Extent)
		if err != nil {
			return err
		}
		id := core.GroupID{ID: core.ID(a.Group)}
		if h.hasShare(e.ID, id, a) {
			continue
		}
		x := byID[id]
		if x == nil {
			x = &giving{h: h, l: l, id: id}
			byID[id], groups = x, append(groups, x)
		}
		x.shares = append(x.shares, listed{e, a})
	}
	lifecycle.Each(groupsAtOnce, groups, func(_ int, x *giving) { x.resume(ctx) })
	if !l.current() {
		return nil
	}
	var failed error // the first one
	failures := 0
	for _, x := range groups {
		failures += x.failures
		failed = cmp.Or(failed, x.failed)
	}
	switch {
	case ctx.Err() != nil:
		return core.Errorf(core.CodeDeadline, "the shares of queue %s are still being resumed: %w", l.queue, cmp.Or(failed, context.Cause(ctx)))
	case failures > 0:
		return core.Errorf(core.CodeOf(failed), "%d of %d shares of queue %s are not resumed: %w", failures, len(l.assignments), l.queue, failed)
	}
	l.resumed()
	return nil
}

// giving is the shares of one group that a list has and the host does not. One goroutine resumes them.
type giving struct {
	h        *Host
	l        accepted
	id       core.GroupID
	shares   []listed // in the order of the chain
	failures int
	failed   error // the first one
}

// listed is a share of a list.
type listed struct {
	extent     core.Extent
	assignment *pb.Assignment
}

// resume resumes the shares of the group, and has it go on with them at once: thousands of other groups may follow. The
// shares behind a gap of a chain, and those that are left when ctx ends, come with the next list.
func (x *giving) resume(ctx context.Context) {
	var found *group
	missing := uint64(0) // the lowest place of the chain that is not resumed; 0: none
	defer func() {
		if found != nil {
			found.pump()
			found.release()
		}
	}()
	for _, s := range x.shares {
		switch {
		case !x.l.current(), ctx.Err() != nil: // and what is not resumed stays a gap
			return
		case missing > 0 && s.extent.Chain > missing:
			continue
		}
		g, err := x.h.giveShare(ctx, x.l, s.extent, s.assignment, x.id)
		if err != nil {
			missing = lower(missing, s.extent.Chain)
			x.failures++ // the others must not wait for it; the controller sends its list again
			x.failed = cmp.Or(x.failed, err)
		}
		switch {
		case g == nil:
		case found != nil:
			g.release()
		default:
			found = g
		}
	}
	if found != nil {
		found.setGap(missing)
	}
}

// hasShare reports whether a share of a list is there; then it takes over where the extent is held.
func (h *Host) hasShare(extent core.ExtentID, group core.GroupID, a *pb.Assignment) bool {
	g := h.loaded(group)
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

// giveShare resumes one share of a list; no group when that was deleted meanwhile, or deleted and made again.
func (h *Host) giveShare(ctx context.Context, l accepted, e core.Extent, a *pb.Assignment, id core.GroupID) (*group, error) {
	g, err := h.groupOf(ctx, l.queue, a.Name, id)
	switch {
	case core.CodeOf(err) == core.CodeNotFound:
		return nil, nil
	case err != nil:
		return nil, err
	}
	if err := g.reach(ctx, a.Epoch); err != nil {
		return g, err
	}
	gone, err := h.gone(ctx, e, a.Removed)
	if err != nil {
		return g, err
	}
	return g, g.addShare(ctx, e, a, gone, l)
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
