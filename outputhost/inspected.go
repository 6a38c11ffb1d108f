package outputhost

import (
	"context"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/core/stuck"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/outputhost/inspect"
)

// inspectedHost implements inspect.Host.
type inspectedHost struct{ h *Host }

func (x inspectedHost) Self() membership.Host { return x.h.deps.Members.Self() }

func (x inspectedHost) Now() time.Time { return x.h.deps.Now() }

func (x inspectedHost) Meta() metadata.Store { return x.h.deps.Meta }

func (x inspectedHost) Store(address string) columbav1connect.StoreServiceClient {
	return x.h.deps.Peers.Store(address)
}

func (x inspectedHost) Find(id core.HostID) (membership.Host, bool) {
	return membership.Find(x.h.deps.Members, id)
}

func (x inspectedHost) Replicas(e core.Extent) []membership.Host {
	return x.h.sources.Of(e, nil, nil, x.h.deps.Now())
}

func (x inspectedHost) Holders(e core.Extent, holders []core.HostID) []membership.Host {
	return x.h.sources.All(e, holders, x.h.deps.Now())
}

func (x inspectedHost) Cancelled(ctx context.Context, extent core.ExtentID) (func(core.Seq) bool, error) {
	decided, err := x.h.cancels.ReadToShow(ctx, extent)
	return decided.ForAll, err
}

func (x inspectedHost) Seals(ctx context.Context, keys []metadata.Key) (map[metadata.Key]metadata.SealRecord, error) {
	return x.h.ends(ctx, keys)
}

func (x inspectedHost) SaveFailure() (bool, error) { return x.h.saver.failing() }

func (x inspectedHost) QueueID(ctx context.Context, path string) (core.QueueID, error) {
	return x.h.queueID(ctx, path)
}

func (x inspectedHost) Group(ctx context.Context, path, name string) (inspect.Group, func(), error) {
	g, err := x.h.lookUp(ctx, path, name)
	if err != nil {
		return nil, nil, err
	}
	return inspectedGroup{g}, g.release, nil
}

func (x inspectedHost) Loaded(id core.GroupID) inspect.Group {
	if g := x.h.loaded(id); g != nil {
		return inspectedGroup{g}
	}
	return nil
}

func (x inspectedHost) AllLoaded() []inspect.Group {
	groups := x.h.groupList()
	out := make([]inspect.Group, len(groups))
	for i, g := range groups {
		out[i] = inspectedGroup{g}
	}
	return out
}

// inspectedGroup implements inspect.Group.
type inspectedGroup struct{ g *group }

func (x inspectedGroup) ID() core.GroupID { return x.g.id }

func (x inspectedGroup) Queue() string { return x.g.queuePath }

func (x inspectedGroup) Name() string { return x.g.name }

func (x inspectedGroup) Sealed(s inspect.Share, row metadata.SealRecord) {
	x.g.ended(s.(inspectedShare).s, row)
}

func (x inspectedGroup) TransferError(to dispatch.Destination) error { return x.g.outbox.Err(to) }

func (x inspectedGroup) Lock() { x.g.mu.Lock() }

func (x inspectedGroup) Unlock() { x.g.mu.Unlock() }

func (x inspectedGroup) Rules() *dispatch.Group { return x.g.mu.rules }

func (x inspectedGroup) Delay() time.Duration { return x.g.mu.record.Spec.Delay }

func (x inspectedGroup) AckRate(now time.Time) float64 { return x.g.ackRateLocked(now) }

func (x inspectedGroup) Shares() []inspect.Share {
	ordered := x.g.orderedLocked()
	out := make([]inspect.Share, len(ordered))
	for i, s := range ordered {
		out[i] = inspectedShare{s}
	}
	return out
}

func (x inspectedGroup) Share(extent core.ExtentID) inspect.Share {
	if s := x.g.mu.shares[extent]; s != nil {
		return inspectedShare{s}
	}
	return nil
}

func (x inspectedGroup) Takers(now time.Time) inspect.Takers { return x.g.takersLocked(now) }

func (x inspectedGroup) Holder(st dispatch.Standing) *pb.Holder {
	out := &pb.Holder{Since: convert.Time(st.Since), Session: uint32(st.Session)}
	if st.Session == pullSession {
		return out
	}
	out.Consumer, out.Host = x.g.nameLocked(st.Session), string(x.g.h.deps.Members.Self().ID)
	if c := x.g.consumerLocked(st.Session); c != nil {
		out.Address, out.Connected = c.s.mux.Conn.RemoteAddr(), convert.Time(c.joined)
	}
	return out
}

func (x inspectedGroup) Counted() *inspect.CountedGroup { return &x.g.mu.counted }

// inspectedShare implements inspect.Share.
type inspectedShare struct{ s *share }

func (x inspectedShare) Extent() core.Extent { return x.s.extent }

func (x inspectedShare) Generation() uint64 { return x.s.generation }

func (x inspectedShare) Rules() *dispatch.Share { return x.s.rules }

func (x inspectedShare) Reading() inspect.Reading {
	s := x.s
	r := inspect.Reading{Failed: s.misses > 0, Ended: s.end, Retired: s.retired}
	if s.reader != nil {
		r.Open, r.Told, r.More = true, s.reader.told, s.reader.more
	}
	return r
}

func (x inspectedShare) Last() core.Seq { return x.s.last }

func (x inspectedShare) Reach(last core.Seq) {
	x.s.last = max(x.s.last, last)
	x.s.group.touchLocked(x.s)
}

func (x inspectedShare) LastOwed() core.Seq { return x.s.lastOwedLocked() }

func (x inspectedShare) Known() []byte { return x.s.knownLocked() }

func (x inspectedShare) Stores(now time.Time) []membership.Host {
	return x.s.sourcesLocked(now)
}

func (x inspectedShare) View(now time.Time) stuck.View {
	s, h := x.s, x.s.group.h
	return stuck.View{
		Full: s.rules.Full(), AtLimit: s.rules.AtLimit(), ShareReady: s.rules.HasReady(), ChainWaits: s.rules.Waits(), MemoryFull: h.memory.Room(s.rules.HeldBatches()) == 0,
		Unreadable: s.failing() && !s.answeredLocked() || len(s.sourcesLocked(now)) == 0, LeaseExpired: !s.group.leaseHolds(now),
	}
}

// answeredLocked reports whether a store that reads the extent has told how far it goes. Failures of before stay
// counted until messages come: a timer extent may have none that are due.
func (s *share) answeredLocked() bool {
	return s.reader != nil && s.reader.told && !s.reader.stopped.Load()
}

func (x inspectedShare) Lister() core.HostID { return x.s.group.lister() }

func (x inspectedShare) Trouble() error { return x.s.trouble }

func (x inspectedShare) ClaimError() error {
	if x.s.claim == nil {
		return nil
	}
	return x.s.claim.Err()
}

func (x inspectedShare) Failed(err error) { x.s.trouble = err }

func (x inspectedShare) Counted() *inspect.CountedShare { return &x.s.counted }
