package controller

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// share is the work of one group on one extent.
type share struct {
	group  core.GroupID
	extent core.ExtentID
}

// shares are who owns which share. Rounds change them, calls read them. Safe for concurrent use but for queues, which is the rounds':
// they run one at a time.
type shares struct {
	wake     chan struct{} // a queue was touched
	complete chan struct{} // closed when a round has looked at all queues
	queues   map[core.QueueID]*queueShares
	renewals *renewals
	mu       struct {
		sync.Mutex
		touched  map[core.QueueID]struct{}
		began    uint64 // rounds that took what was touched …
		ended    uint64 // … and those of them that have ended
		owned    map[share]metadata.AssignmentRecord
		byOwner  map[core.HostID]map[share]struct{}
		versions map[core.HostID]uint64 // of each owner's list
		base     uint64                 // version of a list that was never changed
		pushed   map[core.HostID]pushed
		reheld   map[core.ExtentID]struct{} // whose holders changed since the last round
		epochs   map[core.GroupID]uint64    // of groups that were rewound
		leftOut  map[core.HostID]int        // shares that did not fit into the last list
		moving   map[share]move
	}
}

// pushed is the last list that an output host has confirmed.
type pushed struct {
	run     core.RunID
	version uint64
	busy    bool // a push is under way
}

// queueShares are the groups of one queue, as of the last look at it.
type queueShares struct {
	groups map[core.GroupID]*groupShares
	looked time.Time // when it was last looked at
}

// groupShares are what a group has not consumed to the end.
type groupShares struct {
	metadata.GroupRecord
	pending map[core.ExtentID]core.Extent
}

// newShares begins with a version above those of controllers of before: hosts ignore older lists.
func newShares(now time.Time) *shares {
	s := &shares{wake: make(chan struct{}, 1), queues: make(map[core.QueueID]*queueShares), renewals: newRenewals()}
	s.mu.base = uint64(now.UnixMicro())
	s.mu.touched = make(map[core.QueueID]struct{})
	s.mu.owned = make(map[share]metadata.AssignmentRecord)
	s.mu.byOwner = make(map[core.HostID]map[share]struct{})
	s.mu.versions = make(map[core.HostID]uint64)
	s.mu.pushed = make(map[core.HostID]pushed)
	s.complete = make(chan struct{})
	s.mu.reheld = make(map[core.ExtentID]struct{})
	s.mu.epochs = make(map[core.GroupID]uint64)
	s.mu.leftOut = make(map[core.HostID]int)
	s.mu.moving = make(map[share]move)
	return s
}

// touch asks for a round that looks at the queue.
func (s *shares) touch(queue core.QueueID) {
	s.mu.Lock()
	s.mu.touched[queue] = struct{}{}
	s.mu.Unlock()
	poke(s.wake)
}

// takeTouched returns and forgets the queues that were touched.
func (s *shares) takeTouched() []core.QueueID {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.Collect(maps.Keys(s.mu.touched))
	clear(s.mu.touched)
	s.mu.began++
	return out
}

// endRound notes that what was touched before takeTouched is in the lists; what could not be looked at was touched again.
func (s *shares) endRound() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.ended = s.mu.began
}

// listed reports whether all that was touched of these queues is in the lists, and of which version they are at least, by owner.
func (s *shares) listed(queues []core.QueueID, owners []membership.Host) (versions map[core.HostID]uint64, ok bool) {
	if !s.isComplete() {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.began != s.mu.ended || slices.ContainsFunc(queues, func(q core.QueueID) bool { _, touched := s.mu.touched[q]; return touched }) {
		return nil, false
	}
	versions = make(map[core.HostID]uint64, len(owners))
	for _, m := range owners {
		versions[m.ID] = max(s.mu.versions[m.ID], s.mu.base)
	}
	return versions, true
}

// unheard are those of the owners that have not confirmed a list of their version yet. Runs that began since ask for the newest.
func (s *shares) unheard(owners []membership.Host, versions map[core.HostID]uint64) (out []core.HostID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range owners {
		if p := s.mu.pushed[m.ID]; p.run != m.Run || p.version < versions[m.ID] {
			out = append(out, m.ID)
		}
	}
	return out
}

func (s *shares) owner(k share) metadata.AssignmentRecord {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.owned[k]
}

// set makes a decision count, and answers the one it supersedes.
func (s *shares) set(r metadata.AssignmentRecord) (old metadata.AssignmentRecord) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.setLocked(r)
}

// setAll is set for several at once: no list shows some of them without the others. Owners that are well give their shares away first.
func (s *shares) setAll(rs []metadata.AssignmentRecord, well func(host core.HostID, run core.RunID) bool, now time.Time) (old []metadata.AssignmentRecord) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range rs {
		was, held := s.mu.moving[share{r.Group, r.Extent.ID}]
		last := s.setLocked(r)
		if held { // the owner of before was never told
			s.moveLocked(r, was)
		} else if last.Counter > 0 && well(last.Owner, last.Run) {
			s.moveLocked(r, move{from: last.Owner, run: last.Run, version: s.mu.versions[last.Owner], until: now.Add(moveWithin)})
		}
		old = append(old, last)
	}
	return old
}

func (s *shares) setLocked(r metadata.AssignmentRecord) (old metadata.AssignmentRecord) {
	k := share{r.Group, r.Extent.ID}
	old = s.dropLocked(k)
	s.mu.owned[k] = r
	if s.mu.byOwner[r.Owner] == nil {
		s.mu.byOwner[r.Owner] = make(map[share]struct{})
	}
	s.mu.byOwner[r.Owner][k] = struct{}{}
	s.raiseLocked(r.Owner)
	return old
}

// drop forgets a share that nobody needs any more.
func (s *shares) drop(k share) (old metadata.AssignmentRecord) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropLocked(k)
}

func (s *shares) dropLocked(k share) metadata.AssignmentRecord {
	old, ok := s.mu.owned[k]
	if !ok {
		return old
	}
	delete(s.mu.owned, k)
	delete(s.mu.moving, k)
	delete(s.mu.byOwner[old.Owner], k)
	if len(s.mu.byOwner[old.Owner]) == 0 {
		delete(s.mu.byOwner, old.Owner)
		delete(s.mu.leftOut, old.Owner)
	}
	s.raiseLocked(old.Owner)
	return old
}

func (s *shares) raiseLocked(owner core.HostID) {
	s.mu.versions[owner] = max(s.mu.versions[owner], s.mu.base) + 1
}

// touchHolders asks for a round that tells the readers of a sealed extent where it is now.
func (s *shares) touchHolders(e core.Extent) {
	s.mu.Lock()
	s.mu.reheld[e.ID] = struct{}{}
	s.mu.Unlock()
	s.touch(e.Queue)
}

// raiseReheld makes the lists new of those who read extents whose holders changed, out of shares.
func (s *shares) raiseReheld(of func(extent core.ExtentID) []core.GroupID) {
	s.mu.Lock()
	reheld := slices.Collect(maps.Keys(s.mu.reheld))
	clear(s.mu.reheld)
	s.mu.Unlock()
	for _, extent := range reheld {
		groups := of(extent)
		s.mu.Lock()
		for _, g := range groups {
			if r, ok := s.mu.owned[share{g, extent}]; ok {
				s.raiseLocked(r.Owner)
			}
		}
		s.mu.Unlock()
	}
}

// setEpoch makes the lists new of those who own shares of a group that was rewound.
func (s *shares) setEpoch(group core.GroupID, epoch uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.epochs[group] == epoch { // zero is that of a group that never was
		return
	}
	s.mu.epochs[group] = epoch
	for k, r := range s.mu.owned {
		if k.group == group {
			s.raiseLocked(r.Owner)
		}
	}
}

// forgetEpoch of a group that is gone.
func (s *shares) forgetEpoch(group core.GroupID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.epochs, group)
}

// later remembers a queue for the next tick.
func (s *shares) later(queue core.QueueID) {
	s.mu.Lock()
	s.mu.touched[queue] = struct{}{}
	s.mu.Unlock()
}

func (s *shares) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.owned)
}

// setComplete notes that a round has looked at all queues.
func (s *shares) setComplete() {
	if s.isComplete() {
		return
	}
	close(s.complete)
}

// isComplete: lists have all that this controller should know; before, one would take from its owner what is not known yet.
func (s *shares) isComplete() bool {
	select {
	case <-s.complete:
		return true
	default:
		return false
	}
}

// listFor is the complete list of an output host in that run, once there is one.
func (h *Host) listFor(ctx context.Context, owner core.HostID, run core.RunID) (*pb.AssignmentList, error) {
	if !h.shares.isComplete() {
		poke(h.shares.wake)
	}
	select {
	case <-h.shares.complete:
		return h.listOf(owner, run), nil
	case <-ctx.Done():
	case <-h.tasks.Context().Done():
	}
	return nil, core.Errorf(core.CodeUnavailable, "the controller has not read all queues yet")
}

func (s *shares) list(owner core.HostID, run core.RunID, holders func(core.ExtentID) []string, homed func(core.ExtentID) (rate uint32, removed uint64), retry func(core.ExtentID) bool) *pb.AssignmentList {
	s.mu.Lock()
	out := &pb.AssignmentList{Version: max(s.mu.versions[owner], s.mu.base), Run: run.ID[:]}
	mine := make([]metadata.AssignmentRecord, 0, len(s.mu.byOwner[owner]))
	epochs := make(map[core.GroupID]uint64)
	moving := s.movingLocked(owner)
	for k := range s.mu.byOwner[owner] {
		if r := s.mu.owned[k]; r.Run == run && !moving(r) {
			mine = append(mine, r)
			if epoch := s.mu.epochs[r.Group]; epoch > 0 {
				epochs[r.Group] = epoch
			}
		}
	}
	s.mu.Unlock()
	out.Assignments = make([]*pb.Assignment, 0, len(mine))
	for _, r := range mine {
		rate, removed := homed(r.Extent.ID)
		out.Assignments = append(out.Assignments, &pb.Assignment{
			Group: r.Group.ID[:], Name: r.Name, Extent: convert.ExtentToProto(r.Extent), Counter: r.Counter, By: string(r.By), Holders: holders(r.Extent.ID),
			Epoch: epochs[r.Group], Removed: removed,
		})
		if r.Queue != r.Extent.Queue {
			a := out.Assignments[len(out.Assignments)-1]
			a.Queue, a.Rate, a.Retry = r.Queue.ID[:], rate, retry(r.Extent.ID)
		}
	}
	slices.SortFunc(out.Assignments, func(a, b *pb.Assignment) int {
		return cmp.Or(slices.Compare(a.Group, b.Group), slices.Compare(a.Extent.Id, b.Extent.Id))
	})
	return out
}

// otherHolders are the holders of a sealed extent, when they are not just its replicas.
func (h *Host) otherHolders(id core.ExtentID) []string {
	e, ok := h.extents.Get(id)
	if !ok || !e.State.HasEnd() || sameStores(e) {
		return nil
	}
	out := make([]string, len(e.Holders))
	for i, x := range e.Holders {
		out[i] = string(x.Store)
	}
	return out
}

// homed is what bounds the first deliveries of an extent, messages per second, 0: nothing; and how many of its messages selections have taken.
func (h *Host) homed(id core.ExtentID) (rate uint32, removed uint64) {
	e, _ := h.extents.Get(id)
	return uint32(max(e.Rate, 0)), e.Removed
}

// isRetry reports whether an extent is one of a retry queue: a group reads it from its beginning that is not its queue's.
func (h *Host) isRetry(id core.ExtentID) bool {
	e, _ := h.extents.Get(id)
	return e.ExtentRecord.Home.Kind == core.HomeMerged
}

// sameStores reports whether all replicas hold all, and nobody else does.
func sameStores(e catalog.Extent) bool {
	return len(e.Holders) == len(e.Replicas) && !slices.ContainsFunc(e.Replicas, func(id core.HostID) bool { return !e.Holds(id) })
}
