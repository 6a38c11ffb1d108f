package controller

import (
	"context"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/seal"
	"github.com/columbamq/columba/wire"
)

// copyBytes is how much of a tail is copied by one call.
const copyBytes = 8 << 20

// copyTail brings one replica up to the end, range by range.
func (h *Host) copyTail(ctx context.Context, e core.Extent, c seal.Copy) error {
	from, to := h.address("storehost", c.From), h.address("storehost", c.To)
	if from == "" || to == "" {
		return core.Errorf(core.CodeUnavailable, "store %s or %s is not there", c.From, c.To)
	}
	for next := c.First; next <= c.Last; {
		resp, err := h.deps.Peers.Store(from).ReadRange(ctx, connect.NewRequest(&pb.ReadRangeRequest{
			Extent: e.ID.ID[:], From: uint64(next), UpTo: uint64(c.Last), MaxBytes: copyBytes,
		}))
		if err != nil {
			return convert.FromRPC(err)
		}
		if _, err := h.deps.Peers.Store(to).Copy(ctx, connect.NewRequest(&pb.CopyRequest{Extent: e.ID.ID[:], Batches: resp.Msg.Batches})); err != nil {
			return convert.FromRPC(err)
		}
		if next, err = after(resp.Msg.Batches); err != nil {
			return err
		}
	}
	return nil
}

// after is the seq behind a run of batches.
func after(batches []byte) (core.Seq, error) {
	next := core.Seq(0)
	for len(batches) > 0 {
		b, rest, err := wire.NextBatch(batches)
		if err != nil {
			return 0, err
		}
		next, batches = b.Last()+1, rest
	}
	if next == 0 {
		return 0, core.Errorf(core.CodeIncomplete, "the source has nothing more to copy")
	}
	return next, nil
}
