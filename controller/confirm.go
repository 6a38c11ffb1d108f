package controller

import (
	"context"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// ConfirmEnd implements the controller's service. A store that is to become a holder is told the next version before
// the row has it. An end stays as it is, so a majority confirms it without a round of Paxos. Only what would be refused
// is read at Serial.
func (s *service) ConfirmEnd(ctx context.Context, req *connect.Request[pb.ConfirmEndRequest]) (*connect.Response[pb.ConfirmEndResponse], error) {
	err := s.confirmEnd(ctx, req.Msg, metadata.Quorum)
	if core.CodeOf(err) == core.CodeConflict {
		err = s.confirmEnd(ctx, req.Msg, metadata.Serial)
	}
	if err != nil {
		return nil, convert.RPCError(err)
	}
	return connect.NewResponse(&pb.ConfirmEndResponse{}), nil
}

func (s *service) confirmEnd(ctx context.Context, msg *pb.ConfirmEndRequest, c metadata.Consistency) error {
	row, err := s.h.rowToConfirm(ctx, msg.Extent, c)
	if err == nil && (row.L != core.Seq(msg.L) || row.Checksum != msg.Checksum || msg.Version > row.Version+1) {
		err = core.Errorf(core.CodeConflict, "the row of extent %s says seq %d with checksum %08x at version %d, not %d with %08x at %d; read the row again",
			row.Extent.ID, row.L, row.Checksum, row.Version, msg.L, msg.Checksum, msg.Version)
	}
	return err
}

// ConfirmRemoval implements the controller's service.
func (s *service) ConfirmRemoval(ctx context.Context, req *connect.Request[pb.ConfirmRemovalRequest]) (*connect.Response[pb.ConfirmRemovalResponse], error) {
	by, err := convert.Identity(req.Msg.Store)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	row, err := s.h.rowToConfirm(ctx, req.Msg.Extent, metadata.Serial)
	if err == nil && !row.Removes(core.Place{Store: by.Store, Disk: by.Disk}, req.Msg.Version) {
		err = core.Errorf(core.CodeConflict, "the row of extent %s, at version %d, does not have store %s remove its replica by version %d; decide again",
			row.Extent.ID, row.Version, by.Store, req.Msg.Version)
	}
	if err != nil {
		return nil, convert.RPCError(err)
	}
	return connect.NewResponse(&pb.ConfirmRemovalResponse{}), nil
}

// rowToConfirm reads the row of an extent. CodeConflict: it has no end, and so confirms nothing.
func (h *Host) rowToConfirm(ctx context.Context, extent []byte, c metadata.Consistency) (metadata.SealRecord, error) {
	id, err := core.IDFromBytes(extent)
	if err == nil {
		err = h.mayServe(ctx)
	}
	if err != nil {
		return metadata.SealRecord{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, h.cfg.CallTimeout)
	defer cancel()
	row, _, err := metadata.Read[metadata.SealRecord](ctx, h.deps.Meta, metadata.Seals, metadata.SealKey(core.ExtentID{ID: id}), c)
	switch {
	case core.CodeOf(err) == core.CodeNotFound || err == nil && !row.State.HasEnd():
		return row, core.Errorf(core.CodeConflict, "extent %s has no end in the metadata; seal it first", id)
	case err != nil:
		return row, core.Errorf(core.CodeUnavailable, "read the row of extent %s: %w", id, err)
	}
	return row, nil
}
