package frontend

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/frontend/recent"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

const (
	// sharesFresh is how long the hosts that own shares of a group are not read again. A waiting pull finds a new share on
	// another host that long after its assignment, and then ends its turn at the owner that it waits at.
	sharesFresh = time.Second
	// ownerFresh is the same for the owner of one share. An owner that does not have the share any more says so, and the
	// owner is read again at once; so it may be longer.
	ownerFresh = 10 * time.Second
	// sharesStale is how old either may be while the metadata cannot be read.
	sharesStale = 10 * time.Minute
	// sharesPatience is how long a call waits for the metadata while the frontend knows an older answer.
	sharesPatience = 250 * time.Millisecond
	// maxOwners is how many shares' owners are kept; about 10 MB.
	maxOwners = 50_000
	// maxConsumed is how many extents are kept as consumed, of all groups together; 16 MB. A group without any counts as
	// groupWeight.
	maxConsumed = 1_000_000
	groupWeight = 32
	// askConsumed is how many extents of a group are looked up one by one, before all that the group has consumed is
	// listed.
	askConsumed = 8
)

// share is one extent of one group.
type share struct {
	group  core.GroupID
	extent core.ExtentID
}

// groupEpoch is a group between two seeks.
type groupEpoch struct {
	group core.GroupID
	epoch uint64
}

// groupShares are the output hosts that own shares of a group, live or not.
type groupShares struct {
	owners   []core.HostID
	consumed []core.ExtentID // those that count as consumed and are still assigned, in order
}

// known is what a frontend knows of shares from its last reads.
type known struct {
	owners *recent.Cache[share, core.HostID] // "": the share has no owner
	groups *recent.Cache[groupEpoch, groupShares]
}

func newKnown(now func() time.Time) known {
	cfg := recent.Config{Fresh: ownerFresh, Stale: sharesStale, Patience: sharesPatience, Timeout: 5 * time.Second, Weight: maxOwners, Now: now}
	owners := recent.New[share, core.HostID](cfg)
	cfg.Fresh, cfg.Weight = sharesFresh, maxConsumed
	return known{owners, recent.New[groupEpoch, groupShares](cfg)}
}

func (k known) close() {
	k.owners.Close()
	k.groups.Close()
}

// owners are the live output hosts that own a share of the group which it has not consumed. If none does, owners
// answers one host by the group's id. The first share may go to another: a caller that waits looks the owners up
// again. only: the cluster has no other output host, and nothing was looked up.
func (s *service) owners(ctx context.Context, g metadata.GroupRecord) (hosts []membership.Host, only bool, err error) {
	live := s.ranked(roleOutput, g.ID.ID)
	switch len(live) {
	case 0:
		return nil, false, core.Errorf(core.CodeUnavailable, "no output host is known; try again")
	case 1:
		return live, true, nil
	}
	key := groupEpoch{g.ID, g.Epoch}
	shares, err := s.known.groups.Get(ctx, key, func(ctx context.Context, old groupShares) (groupShares, int, error) {
		out, err := s.readShares(ctx, key, old)
		return out, groupWeight + len(out.consumed), err
	})
	if err != nil {
		return nil, false, core.Errorf(core.CodeOf(err), "look up the shares of group %s: %w", g.ID, err)
	}
	hosts = slices.DeleteFunc(slices.Clone(live), func(h membership.Host) bool { return !slices.Contains(shares.owners, h.ID) })
	if len(hosts) == 0 {
		hosts = live[:1]
	}
	return hosts, false, nil
}

// readShares reads who owns shares of a group. Extents that the group has consumed stay assigned until retention
// removes them, so there may be thousands. An extent that was consumed stays it: no extent is looked up again that old
// has as such.
func (s *service) readShares(ctx context.Context, g groupEpoch, old groupShares) (out groupShares, err error) {
	assigned, err := metadata.Assigned(ctx, s.meta, g.group, metadata.One)
	if err != nil {
		return out, err
	}
	byOwner := make(map[core.HostID][]core.ExtentID)
	for id, a := range assigned {
		if _, ok := slices.BinarySearchFunc(old.consumed, id, compareExtents); ok {
			out.consumed = append(out.consumed, id)
		} else {
			byOwner[a.Owner] = append(byOwner[a.Owner], id)
		}
	}
	var all map[core.ExtentID]time.Time
	asked := 0
	for owner, extents := range byOwner {
		slices.SortFunc(extents, compareExtents)
		for _, id := range slices.Backward(extents) { // the newest is consumed last, mostly
			if asked++; asked == askConsumed+len(byOwner) {
				if all, err = metadata.Consumed(ctx, s.meta, g.group, g.epoch, metadata.One); err != nil {
					return out, err
				}
			}
			_, done := all[id]
			if all == nil {
				if done, err = metadata.IsConsumed(ctx, s.meta, g.group, id, g.epoch, metadata.One); err != nil {
					return out, err
				}
			}
			if !done {
				out.owners = append(out.owners, owner)
				break
			}
			out.consumed = append(out.consumed, id)
		}
	}
	slices.SortFunc(out.consumed, compareExtents)
	return out, nil
}

func compareExtents(a, b core.ExtentID) int { return slices.Compare(a.ID[:], b.ID[:]) }

// ownersOf finds the live output hosts that own shares. A share without a live owner is not in the answer; one whose
// owner cannot be looked up is in failed.
func (s *service) ownersOf(ctx context.Context, shares []share) (owners map[share]membership.Host, failed map[share]error) {
	live := s.members.Hosts(roleOutput)
	type answer struct {
		owner core.HostID
		err   error
	}
	answers := make([]answer, len(shares))
	var g errgroup.Group
	g.SetLimit(fanOut)
	for i, sh := range shares {
		g.Go(func() error {
			a := &answers[i]
			began := s.now()
			if a.owner, a.err = s.ownerOf(ctx, sh); a.err == nil && !isAmong(live, a.owner) {
				s.known.owners.Outdate(sh, began)
				a.owner, a.err = s.ownerOf(ctx, sh)
			}
			return nil
		})
	}
	g.Wait() // no function fails
	owners, failed = make(map[share]membership.Host, len(shares)), make(map[share]error)
	for i, a := range answers {
		if a.err != nil {
			failed[shares[i]] = core.Errorf(core.CodeOf(a.err), "look up the owner of extent %s for group %s: %w", shares[i].extent, shares[i].group, a.err)
		}
		for _, h := range live {
			if h.ID == a.owner {
				owners[shares[i]] = h
			}
		}
	}
	return owners, failed
}

func isAmong(hosts []membership.Host, id core.HostID) bool {
	return slices.ContainsFunc(hosts, func(h membership.Host) bool { return h.ID == id })
}

func (s *service) ownerOf(ctx context.Context, sh share) (core.HostID, error) {
	return s.known.owners.Get(ctx, sh, func(ctx context.Context, _ core.HostID) (core.HostID, int, error) {
		a, _, err := s.assignment(ctx, sh.group, sh.extent, metadata.One)
		return a.Owner, 1, err
	})
}

// learnOwner keeps that a host gave messages to a pull: it owns their shares. So their settlements need no answer of
// the metadata.
func (s *service) learnOwner(group core.GroupID, owner core.HostID, resp *pb.PullResponse) {
	now := s.now()
	var last core.ExtentID
	for _, m := range resp.GetMessages() {
		if at, err := core.ParseReceipt(m.GetReceipt()); err == nil && at.Extent != last {
			s.known.owners.Put(share{group, at.Extent}, owner, now)
			last = at.Extent
		}
	}
}

// assignment is the one of a share that counts; ok says whether there is one.
func (s *service) assignment(ctx context.Context, group core.GroupID, extent core.ExtentID, c metadata.Consistency) (a metadata.AssignmentRecord, ok bool, err error) {
	const page = 4 // there is one, most often
	for after, more := "", true; more; {
		var rows []metadata.Record[metadata.AssignmentRecord]
		rows, more, err = metadata.Prefix[metadata.AssignmentRecord](ctx, s.meta, metadata.Assignments, group.String(), extent.String()+"/", after, page, c)
		if err != nil {
			return a, false, err
		}
		for _, row := range rows {
			after = row.Key.Row
			if !ok || row.Value.Precedence().Compare(a.Precedence()) > 0 {
				a, ok = row.Value, true
			}
		}
	}
	return a, ok, nil
}
