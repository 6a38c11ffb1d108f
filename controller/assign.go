package controller

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/controller/placement"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// share is the work of one group on one extent.
type share struct {
	group  core.GroupID
	extent core.ExtentID
}

// shares are who owns which share, as of the last round. Safe for concurrent use; rounds run one at a time.
type shares struct {
	wake  chan struct{} // a queue was touched
	round sync.Mutex    // held for a whole round of assign: rounds do not overlap
	// complete: a round has looked at all queues. The round's.
	complete bool
	mu       struct {
		sync.Mutex
		touched map[core.QueueID]struct{}
		owned   map[share]metadata.AssignmentRecord
		loaded  map[core.GroupID]bool // its rows were read
		version uint64
		pushed  map[core.HostID]uint64 // version of the list each host has confirmed
		known   map[core.QueueID]bool  // a round has succeeded for it
	}
}

// newShares begins with a version above those of controllers of before: hosts ignore older lists.
func newShares(now time.Time) *shares {
	s := &shares{wake: make(chan struct{}, 1)}
	s.mu.version = uint64(now.UnixMicro())
	s.mu.known = make(map[core.QueueID]bool)
	s.mu.touched = make(map[core.QueueID]struct{})
	s.mu.owned = make(map[share]metadata.AssignmentRecord)
	s.mu.loaded = make(map[core.GroupID]bool)
	s.mu.pushed = make(map[core.HostID]uint64)
	return s
}

// touch asks for a round that looks at the queue.
func (s *shares) touch(queue core.QueueID) {
	s.mu.Lock()
	s.mu.touched[queue] = struct{}{}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// assign makes the owners of all shares what they should be, and tells the output hosts.
func (h *Host) assign(ctx context.Context) error {
	h.shares.round.Lock()
	defer h.shares.round.Unlock()
	h.shares.takeTouched()
	return h.assignQueues(ctx, h.extents.queues(), true)
}

// assignTouched is assign for the queues that were touched since.
func (h *Host) assignTouched(ctx context.Context) error {
	h.shares.round.Lock()
	defer h.shares.round.Unlock()
	touched := h.shares.takeTouched()
	if !h.shares.complete { // a list of some of its shares would take the others from a host
		return h.assignQueues(ctx, h.extents.queues(), true)
	}
	return h.assignQueues(ctx, touched, false)
}

// assignQueues looks at some queues, or at all there are. The caller holds the round.
func (h *Host) assignQueues(ctx context.Context, queues []core.QueueID, all bool) error {
	outputs := h.candidates("outputhost")
	runs := make(map[core.HostID]core.RunID)
	for _, m := range h.deps.Members.Hosts("outputhost") {
		runs[m.ID] = m.Run
	}
	wanted := make(map[share]bool)
	seen := make(map[core.QueueID]bool) // true: looked at; false: it failed
	for _, queue := range queues {
		err := h.assignQueue(ctx, queue, outputs, runs, wanted)
		if err != nil && (!h.shares.isKnown(queue) && core.CodeOf(err) != core.CodeCorrupt || ctx.Err() != nil) {
			return err // what this controller does not know yet it would take from its owner
		}
		if err != nil {
			h.log.Warn("shares of a queue stay as they are", "queue", queue, "err", err)
		} else {
			h.shares.setKnown(queue)
		}
		seen[queue] = err == nil
	}
	dropped, left := h.shares.keep(wanted, func(queue core.QueueID) bool {
		ok, looked := seen[queue]
		return ok || all && !looked // a queue that all lack has no extents any more
	})
	h.forget(ctx, dropped)
	h.shares.complete = h.shares.complete || all
	h.metrics.shares.Set(float64(left))
	h.push(ctx)
	return nil
}

func (h *Host) assignQueue(ctx context.Context, queue core.QueueID, outputs []placement.Candidate, runs map[core.HostID]core.RunID, wanted map[share]bool) error {
	groups, err := h.groupsOf(ctx, queue)
	if err != nil {
		return err
	}
	for _, g := range groups {
		if err := h.assignGroup(ctx, g, h.extents.of(queue), outputs, runs, wanted); err != nil {
			return err
		}
	}
	return nil
}

// forget removes the rows of shares that nobody needs any more.
func (h *Host) forget(ctx context.Context, dropped []metadata.AssignmentRecord) {
	for _, r := range dropped {
		key := metadata.AssignmentKey(r.Group, r.Extent.ID, r.Counter, r.By)
		if err := h.deps.Meta.Remove(ctx, metadata.Assignments, key, h.deps.now(), metadata.One); err != nil {
			h.log.Info("an assignment stays behind", "extent", r.Extent.ID, "group", r.Name, "err", err)
		}
	}
}

// groupsOf a queue that may be given work.
func (h *Host) groupsOf(ctx context.Context, queue core.QueueID) ([]metadata.GroupRecord, error) {
	var out []metadata.GroupRecord
	for g, err := range metadata.All[metadata.GroupRecord](ctx, h.deps.Meta, metadata.Groups, queue.String(), metadata.One) {
		if err != nil {
			return nil, err
		}
		if g.Value.Started && g.Value.Spec.Status != core.StatusDeleted {
			out = append(out, g.Value)
		}
	}
	return out, nil
}

// assignGroup gives the group's unfinished shares to their owners; rows are written only where the owner changes.
func (h *Host) assignGroup(ctx context.Context, g metadata.GroupRecord, es []extent, outputs []placement.Candidate, runs map[core.HostID]core.RunID, wanted map[share]bool) error {
	if len(es) == 0 {
		return nil
	}
	if err := h.loadShares(ctx, g); err != nil {
		return err
	}
	done, err := h.donesOf(ctx, g)
	if err != nil {
		return err
	}
	for _, e := range es {
		if done[e.ID] {
			continue
		}
		s := share{g.ID, e.ID}
		wanted[s] = true
		owner, ok := placement.Owner(g.ID.String()+e.ID.String(), outputs)
		if !ok {
			continue
		}
		old := h.shares.owner(s)
		if old.Owner == owner && old.Run == runs[owner] {
			continue
		}
		r := metadata.AssignmentRecord{
			Group: g.ID, Queue: g.Queue, Name: g.Spec.Name, Extent: e.Extent,
			Counter: old.Counter + 1, By: h.deps.Members.Self().ID, Owner: owner, Run: runs[owner],
		}
		if err := h.writeAssignment(ctx, r, old); err != nil {
			return err
		}
		h.shares.set(s, r)
	}
	return nil
}

// writeAssignment inserts the row and removes the one it supersedes.
func (h *Host) writeAssignment(ctx context.Context, r, old metadata.AssignmentRecord) error {
	now := h.deps.now()
	key := metadata.AssignmentKey(r.Group, r.Extent.ID, r.Counter, r.By)
	if err := metadata.Write(ctx, h.deps.Meta, metadata.Assignments, key, r, now, 0, metadata.One); err != nil {
		return core.Errorf(core.CodeOf(err), "assign %s of group %s: %w", r.Extent.ID, r.Name, err)
	}
	if old.Counter > 0 {
		key := metadata.AssignmentKey(old.Group, old.Extent.ID, old.Counter, old.By)
		if err := h.deps.Meta.Remove(ctx, metadata.Assignments, key, now, metadata.One); err != nil {
			h.log.Info("an old assignment stays behind", "extent", old.Extent.ID, "group", old.Name, "err", err)
		}
	}
	return nil
}

// loadShares reads the rows of a group once, so that counters go on where they were.
func (h *Host) loadShares(ctx context.Context, g metadata.GroupRecord) error {
	h.shares.mu.Lock()
	loaded := h.shares.mu.loaded[g.ID]
	h.shares.mu.Unlock()
	if loaded {
		return nil
	}
	for r, err := range metadata.All[metadata.AssignmentRecord](ctx, h.deps.Meta, metadata.Assignments, g.ID.String(), metadata.Quorum) {
		if err != nil {
			return err
		}
		if k := (share{r.Value.Group, r.Value.Extent.ID}); r.Value.Counter > h.shares.owner(k).Counter {
			h.shares.set(k, r.Value)
		}
	}
	h.shares.mu.Lock()
	h.shares.mu.loaded[g.ID] = true
	h.shares.mu.Unlock()
	return nil
}

// donesOf are the extents the group has consumed in its present epoch.
func (h *Host) donesOf(ctx context.Context, g metadata.GroupRecord) (map[core.ExtentID]bool, error) {
	done := make(map[core.ExtentID]bool)
	for d, err := range metadata.All[metadata.DoneRecord](ctx, h.deps.Meta, metadata.Dones, g.ID.String(), metadata.One) {
		if err != nil {
			return nil, err
		}
		id, err := core.ParseID(d.Key.Row)
		if err != nil {
			return nil, err
		}
		if d.Value.Epoch == g.Epoch {
			done[core.ExtentID{ID: id}] = true
		}
	}
	return done, nil
}

func (s *shares) owner(k share) metadata.AssignmentRecord {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.owned[k]
}

func (s *shares) set(k share, r metadata.AssignmentRecord) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.owned[k] = r
	s.mu.version++
}

func (s *shares) setKnown(queue core.QueueID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.known[queue] = true
}

func (s *shares) isKnown(queue core.QueueID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.known[queue]
}

// takeTouched returns and forgets the queues that were touched.
func (s *shares) takeTouched() []core.QueueID {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.Collect(maps.Keys(s.mu.touched))
	clear(s.mu.touched)
	return out
}

// keep drops what is no longer wanted of the queues that were judged, and returns it, and how many are left.
func (s *shares) keep(wanted map[share]bool, judged func(core.QueueID) bool) (dropped []metadata.AssignmentRecord, left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, r := range s.mu.owned {
		if !wanted[k] && judged(r.Queue) {
			delete(s.mu.owned, k)
			dropped = append(dropped, r)
			s.mu.version++
		}
	}
	return dropped, len(s.mu.owned)
}

// listFor is the complete list of an output host in that run.
func (s *shares) listFor(owner core.HostID, run core.RunID) *pb.AssignmentList {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &pb.AssignmentList{Version: s.mu.version, Run: run.ID[:]}
	for _, r := range s.mu.owned {
		if r.Owner == owner && r.Run == run {
			out.Assignments = append(out.Assignments, &pb.Assignment{
				Group: r.Group.ID[:], Name: r.Name, Extent: convert.ExtentToProto(r.Extent), Counter: r.Counter, By: string(r.By),
			})
		}
	}
	slices.SortFunc(out.Assignments, func(a, b *pb.Assignment) int {
		return cmp.Or(slices.Compare(a.Group, b.Group), slices.Compare(a.Extent.Id, b.Extent.Id))
	})
	return out
}

// push sends its list to every output host that has not confirmed this version. One that does not answer gets it next round.
func (h *Host) push(ctx context.Context) {
	for _, m := range h.deps.Members.Hosts("outputhost") {
		list := h.shares.listFor(m.ID, m.Run)
		h.shares.mu.Lock()
		confirmed := h.shares.mu.pushed[m.ID]
		h.shares.mu.Unlock()
		if confirmed == list.Version && confirmed != 0 {
			continue
		}
		cctx, cancel := context.WithTimeout(ctx, h.cfg.CallTimeout)
		_, err := h.deps.Peers.Output(m.Address).Assign(cctx, connect.NewRequest(list))
		cancel()
		if err != nil {
			h.log.Debug("an output host did not take its list", "host", m.ID, "err", convert.FromRPC(err))
			continue
		}
		h.shares.mu.Lock()
		h.shares.mu.pushed[m.ID] = list.Version
		h.shares.mu.Unlock()
	}
}
