package extentlog

import (
	"cmp"
	"slices"
	"sync"

	"github.com/columbamq/columba/core"
)

// InventoryQuery asks which replicas changed.
type InventoryQuery struct {
	After   uint64   // position of an earlier answer of this run; 0: from the first replica on
	Buckets []uint32 // only these of core.InventoryBuckets; nil: all
	Most    int      // replicas and removals in one answer, at least 1
}

// Inventory is what changed, in the order of the changes. To combine answers, first take out the extents in Removed,
// then put the Replicas in: an extent in both is back again.
//
// A replica changes when it is opened, fenced, sealed, complete up to its end, damaged, or hears of a newer version of
// its holders; not with every append.
type Inventory struct {
	Replicas  []State
	Removed   []core.ExtentID
	Position  uint64 // to ask after next
	FromStart bool   // begins with the first replica: what was known before does not hold any more
	More      bool   // cut at Most
	// Digests of all buckets as they are now, see Listing: they stand for what the replicas are once nothing More is left.
	Digests [core.InventoryBuckets]uint64
}

// Listing is the digest of what a replica's state says; the same as that of what metadata say of a good one: an extent
// without an end by its id alone, a complete replica with its end.
func (s State) listing() uint64 {
	if s.complete() {
		return core.ReplicaDigest(s.Extent.ID, true, s.L, s.Checksum, s.Damaged)
	}
	return core.ReplicaDigest(s.Extent.ID, false, 0, 0, s.Damaged)
}

// complete reports whether the replica holds everything up to its end.
func (s State) complete() bool { return s.Sealed && s.Last == s.L }

// maxRemovals is how many of the last removals a listing remembers.
const maxRemovals = 10_000

// index orders all replicas by their last change. Its lock may be held when an extent's is taken, not the other way
// round.
type index struct {
	mu struct {
		sync.Mutex
		changes   []indexed // by position
		stale     int       // of them, those whose extent has changed again
		removals  int       // of them
		position  uint64    // of the last change
		forgotten uint64    // removals up to here are not remembered
		digests   [core.InventoryBuckets]uint64
		replicas  int
		damaged   int
		open      int
	}
}

// indexed is one change.
type indexed struct {
	position uint64
	id       core.ExtentID
	extent   *extent // nil: removed
}

// listing is what the index counts of an extent; guarded by its lock.
type listing struct {
	position      uint64 // of the last change; 0: not listed
	digest        uint64
	open, damaged bool
}

// note lists the extent as it is now. run is the one whose extents are open.
func (n *index) note(x *extent, run core.RunID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, ok := x.state()
	was := x.listed
	if !ok && was.position == 0 {
		return
	}
	n.count(x.id, was, -1)
	n.mu.position++
	change := indexed{position: n.mu.position, id: x.id}
	x.listed = listing{}
	if ok {
		change.extent = x
		x.listed = listing{position: n.mu.position, digest: s.listing(), damaged: s.Damaged, open: s.Opened && !s.Fenced && s.Header.Run == run}
	} else {
		n.mu.removals++
	}
	n.count(x.id, x.listed, 1)
	if was.position != 0 {
		n.mu.stale++
	}
	n.mu.changes = append(n.mu.changes, change)
	n.compact()
}

// count takes a listing into the sums, or out of them.
func (n *index) count(id core.ExtentID, l listing, by int) {
	if l.position == 0 {
		return
	}
	n.mu.digests[core.InventoryBucket(id)] ^= l.digest
	n.mu.replicas += by
	if l.open {
		n.mu.open += by
	}
	if l.damaged {
		n.mu.damaged += by
	}
}

// compact drops stale changes and old removals, once they are as many as the rest.
func (n *index) compact() {
	excess := max(n.mu.removals-maxRemovals, 0)
	if useless := n.mu.stale + excess; useless < 64 || useless < len(n.mu.changes)/2 {
		return
	}
	n.mu.changes = slices.DeleteFunc(n.mu.changes, func(c indexed) bool {
		if c.extent == nil && excess > 0 {
			excess--
			n.mu.removals--
			n.mu.forgotten = c.position
			return true
		}
		return c.isStale()
	})
	n.mu.stale = 0
}

func (c indexed) isStale() bool { return c.extent != nil && c.extent.listed.position != c.position }

// Inventory implements Log.
func (e *Engine) Inventory(q InventoryQuery) Inventory {
	n := &e.index
	n.mu.Lock()
	defer n.mu.Unlock()
	if q.After < n.mu.forgotten || q.After > n.mu.position {
		q.After = 0
	}
	out := Inventory{FromStart: q.After == 0, Position: n.mu.position, Digests: n.mu.digests}
	wanted := func(core.ExtentID) bool { return true }
	if q.Buckets != nil {
		var in [core.InventoryBuckets]bool
		for _, b := range q.Buckets {
			in[b%core.InventoryBuckets] = true
		}
		wanted = func(id core.ExtentID) bool { return in[core.InventoryBucket(id)] }
	}
	first, found := slices.BinarySearchFunc(n.mu.changes, q.After, func(c indexed, at uint64) int { return cmp.Compare(c.position, at) })
	if found {
		first++
	}
	for _, c := range n.mu.changes[first:] {
		if c.isStale() || !wanted(c.id) || c.extent == nil && out.FromStart {
			continue
		}
		if len(out.Replicas)+len(out.Removed) >= max(q.Most, 1) {
			out.More = true
			return out
		}
		out.Position = c.position
		if c.extent == nil {
			out.Removed = append(out.Removed, c.id)
		} else if s, ok := c.extent.state(); ok {
			out.Replicas = append(out.Replicas, s)
		}
	}
	out.Position = n.mu.position
	return out
}

// totals are how many replicas there are, how many of them are open in this run, and how many are damaged.
func (n *index) totals() (replicas, open, damaged int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.replicas, n.mu.open, n.mu.damaged
}
