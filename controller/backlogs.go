package controller

import (
	"context"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/controller/backlog"
	"github.com/columbamq/columba/controller/catalog"
	"github.com/columbamq/columba/controller/retirement/progress"
	"github.com/columbamq/columba/core"
	arithmetic "github.com/columbamq/columba/core/backlog"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

func (s *service) ListDepths(ctx context.Context, req *connect.Request[pb.ListDepthsRequest]) (*connect.Response[pb.ListDepthsResponse], error) {
	if err := s.h.whenLoaded(ctx); err != nil {
		return nil, convert.RPCError(err)
	}
	out, err := s.h.backlogs.List(req.Msg)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	return connect.NewResponse(out), nil
}

// backlogs are the groups of the queue, and what each has not consumed to the end.
func (q *queueShares) backlogs() []backlog.Group {
	out := make([]backlog.Group, 0, len(q.groups))
	for _, g := range q.groups {
		one := backlog.Group{GroupRecord: g.GroupRecord, Pending: make([]core.ExtentID, 0, len(g.pending))}
		for id := range g.pending {
			one.Pending = append(one.Pending, id)
		}
		out = append(out, one)
	}
	return out
}

// counted is what the computing of backlogs needs of the controller.
type counted struct{ h *Host }

func (x counted) Complete() bool { return x.h.shares.isComplete() }

func (x counted) Responsible(key core.ID) bool { return x.h.duties.Responsible(key) }

func (x counted) Store(id core.HostID) (columbav1connect.StoreServiceClient, bool) {
	st, ok := x.h.stores.Get(id)
	if !ok || !st.Answering() || st.Address == "" {
		return nil, false
	}
	return x.h.deps.Peers.Store(st.Address), true
}

func (x counted) Outputs() []membership.Host { return x.h.hosts.live("outputhost") }

func (x counted) Output(addr string) columbav1connect.OutputServiceClient {
	return x.h.deps.Peers.Output(addr)
}

// Saved reads of an extent of which something was removed what that is, as an owner would that resumes the share.
func (x counted) Saved(ctx context.Context, g metadata.GroupRecord, e catalog.Extent) (arithmetic.Progress, error) {
	ctx, cancel := context.WithTimeout(ctx, x.h.cfg.CallTimeout)
	defer cancel()
	state, err := progress.Saved(ctx, x.h.deps.Meta, g, e.Extent, e.L)
	if err != nil {
		return arithmetic.Progress{}, err
	}
	if e.Removed > 0 {
		row, _, err := metadata.Read[metadata.SealRecord](ctx, x.h.deps.Meta, metadata.Seals, metadata.SealKey(e.ID), metadata.One)
		if err != nil {
			return arithmetic.Progress{}, err
		}
		gone, err := row.Gone()
		if err != nil {
			return arithmetic.Progress{}, err
		}
		state.Merge(dispatch.StateDone(gone))
	}
	return savedProgress(state, g, e, x.h.deps.now()), nil
}

// savedProgress is the progress of a share without an owner, from its checkpoints. A delivered message counts as in
// flight until its lock has ended.
func savedProgress(state dispatch.State, g metadata.GroupRecord, e catalog.Extent, now time.Time) arithmetic.Progress {
	const all = core.Seq(1<<63 - 1)
	d := state.Depth(all, now)
	p := arithmetic.Progress{Settled: state.Consumed(), InFlight: uint64(d.InFlight), Delayed: arithmetic.DelayedIn(d), Retries: uint64(d.Retries)}
	if e.Kind == core.KindTimer && (!e.State.HasEnd() || e.Due().After(now)) {
		p.Unread = arithmetic.DelayedPublish
		if e.Queue == g.Retry {
			p.Unread = arithmetic.DelayedRetry
		}
	}
	return p
}
