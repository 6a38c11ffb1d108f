package selection

import (
	"context"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// Copy has a replica of a staging extent hold these batches, durably. Batches that it already has from an earlier try
// are not sent again. CodeConflict: the replica has other records there, or lacks the records before them.
func Copy(ctx context.Context, store columbav1connect.StoreServiceClient, stage core.Extent, on core.HostID, batches []byte) error {
	disk := stage.Disk(on)
	expected := &pb.StoreIdentity{Store: string(on)}
	if !disk.IsZero() {
		expected.Disk = disk.ID[:]
	}
	resp, err := store.Fence(ctx, connect.NewRequest(&pb.FenceRequest{Extent: convert.ExtentToProto(stage), Expected: expected}))
	if err != nil {
		return core.Errorf(core.CodeOf(convert.FromRPC(err)), "begin on store %s: %w", on, convert.FromRPC(err))
	}
	has, err := convert.FenceAnswer(resp.Msg)
	if err != nil {
		return err
	}
	if has.Identity.Store != on || !disk.IsZero() && has.Identity.Disk != disk {
		return core.Errorf(core.CodeConflict, "store %s has another disk by now", on)
	}
	rest, err := behind(batches, Position{Last: has.Last, Checksum: has.Checksum})
	if err != nil {
		return core.Errorf(core.CodeConflict, "what store %s has of extent %s does not fit: %w", on, stage.ID, err)
	}
	if len(rest) == 0 {
		return nil
	}
	if _, err := store.Copy(ctx, connect.NewRequest(&pb.CopyRequest{Extent: stage.ID.ID[:], Batches: rest, Expected: expected})); err != nil {
		return core.Errorf(core.CodeOf(convert.FromRPC(err)), "copy to store %s: %w", on, convert.FromRPC(err))
	}
	return nil
}

// behind is what follows a position in a run of batches that it lies in, or right before.
func behind(batches []byte, at Position) ([]byte, error) {
	for len(batches) > 0 {
		b, rest, err := wire.NextBatch(batches)
		switch {
		case err != nil:
			return nil, err
		case b.Base == at.Last+1:
			return batches, nil
		case b.Base > at.Last:
			return nil, core.Errorf(core.CodeGap, "it ends at %d, the next batch begins at %d", at.Last, b.Base)
		case b.Last() == at.Last && b.Checksum != at.Checksum:
			return nil, core.Errorf(core.CodeCorrupt, "its checksum at %d is %08x, not %08x", at.Last, at.Checksum, b.Checksum)
		}
		batches = rest
	}
	return nil, nil
}
