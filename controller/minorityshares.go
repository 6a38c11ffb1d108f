package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/controller/placement"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/metadata"
)

// minorityKey names a list.
type minorityKey struct {
	owner catalog.HostRun
	queue core.QueueID
}

// minorityList is a list as it was sent last. An empty one stays until its owner has confirmed it, or is gone.
type minorityList struct {
	counter uint64
	sum     string // of what it has: another sum is another version
	empty   bool
	said    time.Time // when its owner was last heard, or it was made
	parked  bool      // it is empty, and its owner did not confirm it: it is sent again when that is heard again
}

// assignMinority gives the shares of extents owners. A share stays with its owner while that may deliver.
func (h *Host) assignMinority(ctx context.Context, own []catalog.Extent) error {
	m, now := h.minority, h.deps.now()
	owners, runs := h.heardOutputs(now)
	readers := make(map[core.QueueID][]metadata.GroupRecord)
	wanted, kept := make(map[catalog.Share]bool), make(map[core.ExtentID]bool)
	unknown := make(map[core.QueueID]error)
	var changed []minorityShare
	var rows []metadata.Row
	for _, e := range own {
		if _, leaving := m.leaving[e.ID]; leaving { // its assignments may not be at Quorum yet
			kept[e.ID] = true
			continue
		}
		reader, read := e.Home.Reader(e.Queue)
		if !read || e.State == core.ExtentRetired {
			continue
		}
		groups, known := readers[reader]
		if !known && unknown[reader] == nil {
			var err error
			if groups, err = h.readersOfMinority(ctx, reader); err != nil {
				unknown[reader] = core.Errorf(core.CodeOf(err), "groups of queue %s: %w", reader, err)
			} else {
				readers[reader] = groups
			}
		}
		if unknown[reader] != nil { // other queues go on
			kept[e.ID] = true
			continue
		}
		for _, g := range groups {
			if !e.Home.ReadBy(g.ID) {
				continue
			}
			k := catalog.Share{Group: g.ID, Extent: e.ID}
			wanted[k] = true
			old, has := m.shares[k]
			if has {
				old.epoch = g.Epoch
				m.shares[k] = old
			}
			if has && h.shares.renewals.left(old.Run, time.Time{}, now) > 0 || len(owners) == 0 {
				continue
			}
			key := g.ID.String() + e.ID.String()
			if ofRetryQueue(e) {
				key = g.ID.String() + e.Queue.String()
			}
			owner, _ := placement.Owner(key, owners)
			next, row, err := h.decideMinority(g, e.Extent, old, catalog.HostRun{Host: owner, Run: runs[owner]})
			if err != nil {
				return err
			}
			changed, rows = append(changed, next), append(rows, row)
		}
	}
	for k := range m.shares {
		if !wanted[k] && !kept[k.Extent] {
			delete(m.shares, k)
		}
	}
	if len(rows) > 0 {
		if err := h.deps.Meta.PutAll(ctx, metadata.Assignments, rows, metadata.One); err != nil {
			return core.Errorf(core.CodeOf(err), "write %d assignments: %w", len(rows), err)
		}
	}
	for _, s := range changed {
		m.shares[catalog.Share{Group: s.Group, Extent: s.Extent.ID}] = s
	}
	return errors.Join(slices.Collect(maps.Values(unknown))...)
}

// readersOfMinority is groupsOfMinority within metadata.MajorityWait: where the one copy lacks the row of a queue, a
// majority is asked for it.
func (h *Host) readersOfMinority(ctx context.Context, queue core.QueueID) ([]metadata.GroupRecord, error) {
	ctx, cancel := context.WithTimeout(ctx, metadata.MajorityWait)
	defer cancel()
	return h.groupsOfMinority(ctx, queue)
}

// decideMinority is the decision after old.
func (h *Host) decideMinority(g metadata.GroupRecord, e core.Extent, old minorityShare, owner catalog.HostRun) (minorityShare, metadata.Row, error) {
	self := h.deps.Members.Self()
	counter := (&groupShares{GroupRecord: g}).nextCounter(catalog.Decision{Counter: old.Counter})
	s := minorityShare{AssignmentRecord: metadata.AssignmentRecord{
		Group: g.ID, Queue: g.Queue, Name: g.Spec.Name, Extent: e, Counter: counter, By: self.ID, ByRun: self.Run, Owner: owner.Host, Run: owner.Run,
	}, epoch: g.Epoch, written: h.deps.now()}
	row, err := metadata.NewRow(metadata.Assignments, metadata.AssignmentKey(s.Group, s.Extent.ID, s.Precedence()), s.AssignmentRecord, s.written)
	return s, row, err
}

// heardOutputs are the output hosts that this controller heard a moment ago: they are on its side.
func (h *Host) heardOutputs(now time.Time) (out []placement.Candidate, runs map[core.HostID]core.RunID) {
	all, runs := h.candidates("outputhost")
	for _, c := range all {
		if dispatch.OwnerGone-h.shares.renewals.left(runs[c.ID], time.Time{}, now) < dispatch.OwnerLease {
			out = append(out, c)
		}
	}
	return out, runs
}

// groupsOfMinority are the groups of a queue that get messages where no majority of the metadata answers, by one copy.
// A group that delivers at most once, and one of a CP queue, gets nothing there: only a majority decides who may
// deliver to it.
func (h *Host) groupsOfMinority(ctx context.Context, queue core.QueueID) (out []metadata.GroupRecord, err error) {
	q, err := h.queueRow(ctx, queue)
	if err != nil || q.Spec.Status == core.StatusDeleted || q.Spec.Consistency == core.CP {
		return nil, err
	}
	for g, err := range metadata.All[metadata.GroupRecord](ctx, h.deps.Meta, metadata.Groups, queue.String(), metadata.One) {
		if err != nil {
			return nil, err
		}
		if r := g.Value; r.Started && r.Spec.Status != core.StatusDeleted && r.Spec.Delivery != core.AtMostOnce {
			out = append(out, r)
		}
	}
	return out, nil
}

// minorityLists are the shares by the lists that they are in.
func (h *Host) minorityLists() map[minorityKey][]*pb.Assignment {
	out := make(map[minorityKey][]*pb.Assignment)
	for _, s := range h.minority.shares {
		if _, leaving := h.minority.leaving[s.Extent.ID]; leaving {
			continue
		}
		if e, live := h.extents.Get(s.Extent.ID); live {
			k := minorityKey{catalog.HostRun{Host: s.Owner, Run: s.Run}, s.Queue}
			out[k] = append(out[k], assignment(catalog.DecisionOf(s.AssignmentRecord, s.written), e, s.epoch))
		}
	}
	for _, all := range out {
		slices.SortFunc(all, func(a, b *pb.Assignment) int {
			if c := slices.Compare(a.Group, b.Group); c != 0 {
				return c
			}
			return slices.Compare(a.Extent.Id, b.Extent.Id)
		})
	}
	return out
}

// tellMinority sends output hosts their lists, also those that they have: one whose lease ended has dropped them. Lists
// that are not among them are sent empty, until they are confirmed. It reports whether no list is left that was sent
// and is not among these.
func (h *Host) tellMinority(ctx context.Context, lists map[minorityKey][]*pb.Assignment) (all bool) {
	m, now := h.minority, h.deps.now()
	for k := range lists {
		if m.lists[k] == nil {
			m.lists[k] = &minorityList{said: now}
		}
	}
	byOwner := make(map[catalog.HostRun][]*pb.AssignmentList)
	for k, l := range m.lists {
		if l.parked = l.parked && len(lists[k]) == 0; l.parked && h.shares.renewals.left(k.owner.Run, time.Time{}, now) <= 0 {
			continue
		}
		out := &pb.AssignmentList{Queue: k.queue.ID[:], Assignments: lists[k], Minority: true}
		l.empty = len(out.Assignments) == 0
		if sum := shapeOf(out.Assignments); l.counter == 0 || sum != l.sum {
			l.sum, l.counter = sum, h.shares.Counter(h.shares.Counter(0)+1)
		}
		out.Version = convert.ListVersionToProto(core.ListVersion{Counter: l.counter, Controller: h.maker().Controller, Run: h.maker().Run})
		byOwner[k.owner] = append(byOwner[k.owner], out)
	}
	var calls errgroup.Group
	answers := make(map[catalog.HostRun]*[]core.ListVersion, len(byOwner))
	for owner, some := range byOwner {
		newest := new([]core.ListVersion)
		answers[owner] = newest
		calls.Go(func() (err error) {
			*newest, err = h.callMinority(ctx, owner, some)
			if err != nil {
				h.log.Debug("an output host did not take its lists of shares", "host", owner.Host, "err", err)
			}
			return nil
		})
	}
	calls.Wait() // no function fails
	for owner, some := range byOwner {
		for i, newest := range *answers[owner] {
			k := minorityKey{owner, core.QueueID{ID: core.ID(some[i].Queue)}}
			l := m.lists[k]
			l.said = now
			switch {
			case newest == (core.ListVersion{}): // shares that the list lacks are not saved yet
			case newest.Counter > l.counter:
				h.shares.Heard(newest.Counter)
				l.counter = 0
			case l.empty:
				delete(m.lists, k)
			}
		}
	}
	for k, l := range m.lists {
		if l.empty && now.Sub(l.said) >= dispatch.OwnerGone+metadata.MajorityWait { // its lease is over; a list of before may still be on its way
			l.parked = true
		}
		all = all || m.lists[k] != nil && l.empty && !l.parked
	}
	return !all
}

// unconfirmed reports whether there are lists that are not parked.
func (m *minority) unconfirmed() bool {
	for _, l := range m.lists {
		if !l.parked {
			return true
		}
	}
	return false
}

// ownersOf are the runs that have shares of lists.
func ownersOf(lists map[minorityKey][]*pb.Assignment) *map[core.RunID]bool {
	out := make(map[core.RunID]bool, len(lists))
	for k := range lists {
		out[k.owner.Run] = true
	}
	return &out
}

// mayKeep reports whether an output host may go on with its lists. One that has none here may have taken a list of
// before, which was long on its way.
func (m *minority) mayKeep(run core.RunID) bool {
	owners := m.owners.Load()
	return m.keeps.Load() && owners != nil && (*owners)[run]
}

// shapeOf is a text that is another one for other assignments.
func shapeOf(all []*pb.Assignment) string {
	var b []byte
	for _, a := range all {
		b = fmt.Appendf(b, "%x %x %d %d %d %v\n", a.Group, a.Extent.GetId(), a.Counter, a.Epoch, a.Removed, a.Holders)
	}
	return string(b)
}

// minorityCall bounds the time of a call: the others wait for it.
const minorityCall = time.Second

// callMinority sends an output host its lists, and answers which versions count there.
func (h *Host) callMinority(ctx context.Context, owner catalog.HostRun, lists []*pb.AssignmentList) (newest []core.ListVersion, err error) {
	to, ok := h.hosts.find(owner.Host)
	if !ok || to.Run != owner.Run {
		return nil, core.Errorf(core.CodeUnavailable, "output host %s is not there", owner.Host)
	}
	ctx, cancel := context.WithTimeout(ctx, minorityCall)
	defer cancel()
	resp, err := h.deps.Peers.Output(to.Address).Assign(ctx, connect.NewRequest(&pb.AssignRequest{Run: owner.Run.ID[:], Lists: lists}))
	if err != nil {
		return nil, convert.FromRPC(err)
	}
	if len(resp.Msg.Lists) != len(lists) {
		return nil, core.Errorf(core.CodeInternal, "%d answers to %d lists", len(resp.Msg.Lists), len(lists))
	}
	for _, a := range resp.Msg.Lists {
		v, err := convert.ListVersion(a.Newest)
		if err != nil {
			return nil, err
		}
		newest = append(newest, v)
	}
	return newest, nil
}
