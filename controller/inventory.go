package controller

import (
	"context"
	"slices"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/seal"
)

const (
	// wholeEvery is how often a whole inventory is compared, whatever the digests say.
	wholeEvery = 24 * time.Hour
	// inventoriesAtOnce bounds the stores that are asked side by side.
	inventoriesAtOnce = 8
	// maxOpen is how many replicas with something to be done are remembered; with more, all are listed again.
	maxOpen = 10_000
	// mostOdd is how often digests may differ for no reason before they are not believed any more.
	mostOdd = 3
	// inventoryTimeout bounds one store's turn.
	inventoryTimeout = time.Minute
)

// mirror is what a store said it has. Its owner is the turn of the store; turns do not overlap.
type mirror struct {
	run      core.RunID
	position uint64
	replicas map[core.ExtentID]uint64      // → the digest of what it said
	open     map[core.ExtentID]*pb.Replica // those that something is to be done about, looked at again each time
	digests  [core.InventoryBuckets]uint64
	mine     buckets   // that are compared here: replicas, open and digests have no others
	listed   buckets   // of mine, those of which replicas has all
	whole    time.Time // when all was compared
	next     time.Time // when it is asked again
	lacking  bool      // something that it should hold may be missing: looked for each time until nothing is
	ends     uint64    // see catalog.Extents.Ends, when it was looked for
	odd      int       // how often in a row its digests differed although all was listed again
}

func newMirror() *mirror {
	return &mirror{replicas: make(map[core.ExtentID]uint64), open: make(map[core.ExtentID]*pb.Replica)}
}

func (m *mirror) put(id core.ExtentID, digest uint64) {
	m.digests[core.InventoryBucket(id)] ^= m.replicas[id] ^ digest
	m.replicas[id] = digest
}

func (m *mirror) remove(id core.ExtentID) {
	m.digests[core.InventoryBucket(id)] ^= m.replicas[id]
	delete(m.replicas, id)
	delete(m.open, id)
}

// clear forgets all of some buckets.
func (m *mirror) clear(some buckets) {
	for id := range m.replicas {
		if some[core.InventoryBucket(id)] {
			m.remove(id)
		}
	}
}

// digestOf what a store says about a replica: an extent without an end by its id alone, a complete one with its end.
func digestOf(id core.ExtentID, r *pb.Replica) uint64 {
	if r.Sealed && r.Last == r.L {
		return core.ReplicaDigest(id, true, core.Seq(r.L), r.Checksum, r.Damaged)
	}
	return core.ReplicaDigest(id, false, 0, 0, r.Damaged)
}

// inventoryLoop compares what the stores have with the seal rows, by level, until ctx ends.
func (h *Host) inventoryLoop(ctx context.Context) {
	mirrors := make(map[core.HostID]*mirror)
	tick := time.NewTicker(max(h.cfg.InventoryEvery/6, time.Second))
	defer tick.Stop()
	for ctx.Err() == nil {
		h.compareStores(ctx, mirrors, h.strays)
		h.settleStrays(ctx, h.strays)
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// compareStores gives a turn to each store that is due, side by side.
func (h *Host) compareStores(ctx context.Context, mirrors map[core.HostID]*mirror, strays *strays) {
	now, mine := h.deps.now(), h.inventoried()
	answering := make(map[core.HostID]bool)
	var g errgroup.Group
	g.SetLimit(inventoriesAtOnce)
	for _, st := range h.stores.All() {
		answering[st.ID] = true
		m := mirrors[st.ID]
		if m == nil {
			m = newMirror()
			mirrors[st.ID] = m
		}
		if now.Before(m.next) && !mine.exceeds(m.mine) {
			continue
		}
		m.next = now.Add(h.cfg.InventoryEvery)
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, inventoryTimeout)
			defer cancel()
			if err := h.compareStore(ctx, st, m, mine, strays); err != nil && ctx.Err() == nil {
				h.log.Info("an inventory could not be compared", "store", st.ID, "err", err)
			}
			return nil
		})
	}
	g.Wait()
	for id := range mirrors {
		if !answering[id] {
			delete(mirrors, id) // when it is back all is compared
		}
	}
}

// compareStore takes over what changed in some buckets of a store, or everything, and acts on it.
func (h *Host) compareStore(ctx context.Context, st catalog.Store, m *mirror, mine buckets, strays *strays) error {
	if m.divide(mine); mine == (buckets{}) {
		return nil
	}
	if h.deps.now().Sub(m.whole) >= wholeEvery {
		m.position = 0
	}
	whole := len(m.open) > maxOpen
	if whole {
		m.position = 0
	}
	for id, r := range m.open {
		if e, err := convert.Extent(r.Extent); err != nil || h.compareReplica(st, e, r, strays) {
			delete(m.open, id)
		}
	}
	for {
		req := &pb.InventoryRequest{Run: m.run.ID[:], Since: m.position}
		if mine != allBuckets {
			req.Buckets, req.After = mine.list(), m.position
		}
		resp, err := h.inventory(ctx, st, req)
		if err != nil {
			return err
		}
		if resp.FromStart {
			m.clear(mine)
			m.listed, whole = mine, true
		}
		m.lacking = m.lacking || whole || len(resp.Removed) > 0
		h.takeInventory(st, m, resp, strays)
		m.run, m.position = st.Identity.Run, resp.Position
		if !resp.More {
			if err := h.compareDigests(ctx, st, m, resp.Digests, strays); err != nil {
				return err
			}
			break
		}
	}
	if whole {
		m.whole = h.deps.now()
	}
	if ends := h.extents.Ends(); m.lacking || ends != m.ends { // another controller may have fixed an end, and others be the holders since
		m.lacking, m.ends = h.findMissing(st, m), ends
	}
	h.findUnopened(st, m)
	return nil
}

// inventory asks a store, and believes no other one that answers in its place.
func (h *Host) inventory(ctx context.Context, st catalog.Store, req *pb.InventoryRequest) (*pb.InventoryResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.CallTimeout)
	defer cancel()
	resp, err := h.deps.Peers.Store(st.Address).Inventory(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, convert.FromRPC(err)
	}
	switch is, err := convert.Identity(resp.Msg.Identity); {
	case err != nil:
		return nil, err
	case is != st.Identity:
		return nil, core.Errorf(core.CodeConflict, "store %s has restarted", st.ID)
	}
	return resp.Msg, nil
}

// takeInventory puts one answer into the mirror, and looks at each replica in it.
func (h *Host) takeInventory(st catalog.Store, m *mirror, resp *pb.InventoryResponse, strays *strays) {
	for _, b := range resp.Removed {
		if id, err := core.IDFromBytes(b); err == nil {
			m.remove(core.ExtentID{ID: id})
		}
	}
	for _, r := range resp.Replicas {
		e, err := convert.Extent(r.Extent)
		if err != nil {
			h.log.Warn("a store reports an invalid replica", "store", st.ID, "err", err)
			continue
		}
		if !m.mine[core.InventoryBucket(e.ID)] {
			continue
		}
		m.put(e.ID, digestOf(e.ID, r))
		if h.compareReplica(st, e, r, strays) {
			delete(m.open, e.ID)
		} else if len(m.open) <= maxOpen {
			m.open[e.ID] = r
		}
	}
}

// compareDigests lists the buckets again in which something differs. A bucket that came to this controller differs,
// unless it is empty.
func (h *Host) compareDigests(ctx context.Context, st catalog.Store, m *mirror, digests []uint64, strays *strays) error {
	differ := m.differing(digests)
	if differ == (buckets{}) {
		m.lacking = m.lacking || m.listed != m.mine
		m.odd, m.listed = 0, m.mine
		return nil
	}
	if m.odd >= mostOdd {
		if differ = differ.without(m.listed); differ == (buckets{}) {
			return nil
		}
	}
	m.clear(differ)
	for after := uint64(0); ; {
		resp, err := h.inventory(ctx, st, &pb.InventoryRequest{Run: m.run.ID[:], Buckets: differ.list(), After: after})
		if err != nil {
			return err
		}
		h.takeInventory(st, m, resp, strays)
		if after = resp.Position; !resp.More {
			digests = resp.Digests
			break
		}
	}
	m.lacking, m.listed = true, m.mine
	if left := m.differing(digests); left != (buckets{}) {
		if m.odd++; m.odd == mostOdd { // it may have changed between the pages before
			h.log.Warn("the digests of a store differ from its list of replicas", "store", st.ID, "buckets", len(left.list()))
		}
	}
	return nil
}

func (m *mirror) differing(digests []uint64) (out buckets) {
	if len(digests) != len(m.digests) {
		return out
	}
	for b, d := range digests {
		out[b] = m.mine[b] && d != m.digests[b]
	}
	return out
}

// compareReplica looks at what a store says of one replica, and answers whether all is well with it. An inventory is
// old when it is read: whatever takes something away is confirmed with the store first.
func (h *Host) compareReplica(st catalog.Store, tuple core.Extent, r *pb.Replica, strays *strays) (well bool) {
	e, known := h.extents.Get(tuple.ID)
	if !known {
		strays.add(st, tuple, h.deps.now()) // findMissing looks again when it gets an end
		return true
	}
	is := core.Place{Store: st.ID, Disk: st.Identity.Disk}
	held := slices.ContainsFunc(e.Holders, func(x core.Place) bool { return x.Store == is.Store && (x.Disk.IsZero() || x.Disk == is.Disk) })
	switch {
	case e.State == core.ExtentOpen && r.Damaged:
		h.sealSoon(e.Extent, "replica damaged")
	case e.State == core.ExtentOpen && r.Fenced && e.Home.Kind != core.HomeStaging: // by a sealer that did not come to write the row: nothing can be appended any more
		h.sealSoon(e.Extent, "fenced")
	case e.State != core.ExtentSealed: // findMissing looks again when it gets an end
		return !r.Damaged && !r.Sealed
	case r.Sealed && core.Seq(r.L) != e.L:
		h.metrics.alarms.WithLabelValues(string(seal.AlarmTwoEnds)).Inc()
		h.log.Error("a replica persisted another end than the seal row has", "extent", e.ID, "store", st.ID, "end_seq", r.L, "row", e.L)
	case e.Spent:
		return h.compareLeft(st, e, r)
	case held && e.Belies(r):
		h.look(e.ID, func(ctx context.Context) { h.repairs.Doubt(ctx, e.ID, is) })
	case held && !r.Sealed:
		h.look(e.ID, func(ctx context.Context) { h.tellAgain(ctx, e) })
	case held:
		return true
	case len(e.Holders) < e.Copies():
		h.repairs.Want(e.ID)
	case e.LostFrom > 0:
		return h.compareLeft(st, e, r)
	case core.Seq(r.Committed) > e.L && !e.Forced:
		h.metrics.alarms.WithLabelValues(string(seal.AlarmBelowFloor)).Inc()
		h.log.Error("a replica knows a committed seq beyond the end of its sealed extent: it is kept; compare the replicas with `columba inspect extent`", "extent", e.ID, "store", st.ID, "committed", r.Committed, "row", e.L)
	default:
		h.look(e.ID, func(ctx context.Context) { h.repairs.RemoveSurplus(ctx, e.ID, is) })
	}
	return false
}

// compareLeft looks at what a store that is no holder has of an extent that was given up in part. All of it stays, as
// it may be more than holders have. A replica is to show what it has.
func (h *Host) compareLeft(st catalog.Store, e catalog.Extent, r *pb.Replica) (well bool) {
	if r.Sealed || r.Damaged || !slices.Contains(e.Replicas, st.ID) {
		return true
	}
	h.look(e.ID, func(ctx context.Context) { h.tellAgain(ctx, e) })
	return false
}

// findMissing looks for extents that a store should hold and does not list, or lists without their end, and reports
// whether there are any. A listed replica was compared with the row as it was known then: another controller may have
// sealed the extent before.
func (h *Host) findMissing(st catalog.Store, m *mirror) bool {
	at := core.Place{Store: st.ID, Disk: st.Identity.Disk}
	missing := h.extents.All(func(e *catalog.Extent) bool {
		if e.State != core.ExtentSealed || e.Spent || !e.Holds(at.Store) || !m.mine[core.InventoryBucket(e.ID)] {
			return false
		}
		digest, listed := m.replicas[e.ID]
		return !listed || digest == core.ReplicaDigest(e.ID, false, 0, 0, false) && e.LostFrom == 0 // of what was given up holders have no end
	})
	some := false
	for e := range missing {
		some = true
		_, listed := m.replicas[e.ID]
		h.look(e.ID, func(ctx context.Context) {
			h.repairs.Doubt(ctx, e.ID, at)
			if listed { // it may have all of it, and not have been told so
				h.tellAgain(ctx, e)
			}
		})
	}
	return some
}

// unopenedAfter is how long an input host may take to open an extent that was made for it, which is a matter of
// seconds.
const unopenedAfter = 2 * time.Minute

// findUnopened has the extents sealed that were made for an input host that never opened them: the answer was lost, and
// it published nothing since. Nothing can have been acknowledged in an extent of which one replica does not know.
func (h *Host) findUnopened(st catalog.Store, m *mirror) {
	now := h.deps.now()
	unopened := h.extents.Open(func(e *catalog.Extent) bool {
		_, listed := m.replicas[e.ID]
		return !listed && m.mine[core.InventoryBucket(e.ID)] && e.Home.Kind != core.HomeStaging && now.Sub(e.Created) >= unopenedAfter && slices.Contains(e.Replicas, st.ID)
	})
	for e := range unopened {
		h.look(e.ID, func(ctx context.Context) {
			cctx, cancel := context.WithTimeout(ctx, h.cfg.CallTimeout)
			_, err := h.deps.Peers.Store(st.Address).GetReplica(cctx, connect.NewRequest(&pb.GetReplicaRequest{Extent: e.ID.ID[:]}))
			cancel()
			if core.CodeOf(convert.FromRPC(err)) == core.CodeNotFound {
				h.sealUnasked(ctx, e.Extent, "never opened")
			}
		})
	}
}
