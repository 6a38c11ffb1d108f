package frontend

import (
	"context"
	"slices"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// verifyWait is how much longer than other calls VerifyExtent may take: a store reads a whole replica for it.
const verifyWait = 5 * time.Minute

// VerifyExtent has stores read their replicas of an extent, side by side. Each answers for itself: one that does not
// answer is no error of the call.
func (s *service) VerifyExtent(ctx context.Context, req *connect.Request[pb.VerifyExtentRequest]) (*connect.Response[pb.VerifyExtentResponse], error) {
	id, err := core.ParseID(req.Msg.GetExtent())
	if err != nil {
		return nil, err
	}
	e, err := s.findExtent(ctx, core.ExtentID{ID: id})
	if err != nil {
		return nil, err
	}
	stores, what := []core.HostID{}, "verify extent"
	if req.Msg.GetStore() == "" {
		if stores, err = s.storesOf(ctx, e); err != nil {
			return nil, err
		}
	} else {
		store, err := core.ParseHostID(req.Msg.GetStore())
		if err != nil {
			return nil, err
		}
		stores, what = append(stores, store), what+" on store "+string(store)
	}
	ended, err := s.audit(ctx, req.Peer().Addr, what, e.ID.String())
	if err != nil {
		return nil, err
	}
	out := &pb.VerifyExtentResponse{Replicas: make([]*pb.VerifiedReplica, len(stores))}
	var g errgroup.Group
	for i, store := range stores {
		g.Go(func() error {
			out.Replicas[i] = s.verifyReplica(ctx, e.ID, store)
			return nil
		})
	}
	_ = g.Wait() // none fails
	ended(context.WithoutCancel(ctx), nil)
	return connect.NewResponse(out), nil
}

// storesOf are the stores that have a replica of an extent, or should.
func (s *service) storesOf(ctx context.Context, e core.Extent) ([]core.HostID, error) {
	seal, _, err := metadata.Read[metadata.SealRecord](ctx, s.meta, metadata.Seals, metadata.SealKey(e.ID), metadata.One)
	if err != nil && core.CodeOf(err) != core.CodeNotFound {
		return nil, core.Errorf(core.CodeOf(err), "look up the end of extent %s: %w", e.ID, err)
	}
	stores := append(slices.Clone(e.Replicas), seal.Holders...)
	slices.Sort(stores)
	return slices.Compact(stores), nil
}

// verifyReplica asks one store.
func (s *service) verifyReplica(ctx context.Context, id core.ExtentID, store core.HostID) *pb.VerifiedReplica {
	out := &pb.VerifiedReplica{Store: string(store), Outcome: "unanswered"}
	h, ok := storeCalls{s}.Find(store)
	if !ok {
		out.Reason = "the store is not there; see `columba list hosts`"
		return out
	}
	req := &pb.VerifyReplicaRequest{Extent: id.ID[:]}
	v, err := askOne(ctx, h, 0, req, func(addr string) rpc[pb.VerifyReplicaRequest, pb.VerifyReplicaResponse] {
		return s.peers.Store(addr).Verify
	})
	switch {
	case core.CodeOf(err) == core.CodeNotFound:
		out.Outcome = "absent"
	case err != nil:
		out.Reason = err.Error()
	default:
		out.Outcome, out.Bytes, out.Reason = verified(v), v.GetBytes(), v.GetWhy()
	}
	return out
}

func verified(v *pb.VerifyReplicaResponse) string {
	switch {
	case !v.GetSound():
		return "damaged"
	case v.GetLifted():
		return "lifted"
	}
	return "sound"
}
