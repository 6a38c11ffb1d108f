package inputhost

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/inputhost/writer"
)

const openTimeout = 5 * time.Second

// openExtent asks the controller for an extent it does not know of yet and opens it on all its stores. When a
// store refuses, the extent is sealed.
func (q *queue) openExtent(ctx context.Context) (*writer.Writer, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	ctl, err := q.h.controller()
	if err != nil {
		return nil, err
	}
	self := q.h.deps.Members.Self()
	req := &pb.EnsureExtentRequest{Queue: q.id.ID[:], Input: string(self.ID), InputRun: self.Run.ID[:], Kind: string(core.KindLog)}
	q.mu.Lock()
	for w := range q.mu.writers {
		req.Have = append(req.Have, w.Extent.ID.ID[:])
	}
	q.mu.Unlock()
	resp, err := ctl.EnsureExtent(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, convert.FromRPC(err)
	}
	extent, err := convert.Extent(resp.Msg.Extent)
	if err != nil {
		return nil, err
	}
	if len(resp.Msg.Stores) != len(extent.Replicas) {
		return nil, core.Errorf(core.CodeInternal, "extent %s has %d replicas but %d addresses", extent.ID, len(extent.Replicas), len(resp.Msg.Stores))
	}
	w := writer.New(extent, q.h.limits(), q.env())
	q.mu.Lock()
	q.mu.writers[w] = struct{}{}
	q.mu.Unlock()
	replicas := make([]writer.Replica, len(extent.Replicas))
	g, gctx := errgroup.WithContext(ctx)
	for i, store := range resp.Msg.Stores {
		g.Go(func() error {
			link, err := q.h.deps.Peers.Link(gctx, store.Address, "/v1/store")
			if err != nil {
				return err
			}
			replicas[i], err = writer.OpenReplica(gctx, link, w, i)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		for _, r := range replicas {
			if r != nil {
				r.Close()
			}
		}
		w.Fail(err)
		return nil, core.Errorf(core.CodeUnavailable, "open extent %s: %w", extent.ID, err)
	}
	w.Start(replicas)
	return w, nil
}

// env is what this queue's writers need.
func (q *queue) env() writer.Env {
	return writer.Env{
		Log:   q.h.log.With("queue", q.path),
		Seal:  q.seal,
		Again: q.again,
		Ended: q.ended,
		Go:    q.h.tasks.Go,
		Now:   q.h.deps.now,
		Sealed: func(w *writer.Writer) {
			q.mu.Lock()
			delete(q.mu.writers, w)
			q.mu.Unlock()
		},
	}
}

// seal asks the controller for the end of an extent.
func (q *queue) seal(ctx context.Context, e core.Extent, floor core.Seq, reason string) (core.Seq, int, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	ctl, err := q.h.controller()
	if err != nil {
		return 0, 0, err
	}
	resp, err := ctl.SealExtent(ctx, connect.NewRequest(&pb.SealExtentRequest{Extent: convert.ExtentToProto(e), Floor: uint64(floor), Reason: reason}))
	if err != nil {
		return 0, 0, convert.FromRPC(err)
	}
	q.h.metrics.seals.WithLabelValues(reason).Inc()
	return core.Seq(resp.Msg.L), len(resp.Msg.Holders), nil
}

func (h *Host) controller() (columbav1connect.ControllerServiceClient, error) {
	hosts := h.deps.Members.Hosts("controller")
	if len(hosts) == 0 {
		return nil, core.Errorf(core.CodeUnavailable, "no controller is known")
	}
	return h.deps.Peers.Controller(hosts[0].Address), nil
}
