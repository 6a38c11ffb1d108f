// Package selection picks the dead letters of a selection out of an extent's batches, and makes the batches of a
// staging extent of them.
package selection

import (
	"context"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/wire"
)

// Position is how far a staging extent goes.
type Position struct {
	Last       core.Seq
	Checksum   uint32 // rolling, at Last
	AppendTime int64  // of the batch of Last, unix µs
}

// Filter makes the batches of a staging extent from the batches of an extent, given in their order. Each batch becomes
// one batch of the records that match, byte for byte, with its append time, or the append time of the batch before it
// if that is later.
//
// Filter is deterministic: a second run with the same selection, the same removed dead letters and the same position
// makes identical batches.
type Filter struct {
	Selection core.Selection
	Removed   *acklevel.Window // what selections of before have taken
	At        Position         // of the staging extent

	Out     []byte          // batches for the staging extent
	Matched acklevel.Window // what fits
	Looked  uint64          // what was there to be compared
}

// Batch takes the next batch; its records were verified.
func (s *Filter) Batch(b wire.Batch) error {
	head := len(s.Out)
	s.Out = append(s.Out, make([]byte, wire.BatchHeaderLen)...)
	count := uint32(0)
	seq, records := b.Base, b.Records
	for ; len(records) > 0; seq++ {
		record, rest, err := wire.NextRecord(records)
		if err != nil {
			return err
		}
		records = rest
		if s.Removed.Done(seq) {
			continue
		}
		s.Looked++
		fits, err := s.fits(record, b.AppendTime)
		if err != nil {
			return core.Errorf(core.CodeOf(err), "dead letter %d: %w", seq, err)
		}
		if fits {
			s.Out = append(s.Out, record...)
			s.Matched.Ack(seq)
			count++
		}
	}
	if count == 0 {
		s.Out = s.Out[:head]
		return nil
	}
	h := wire.BatchHeader{Base: s.At.Last + 1, Count: count, AppendTime: max(b.AppendTime, s.At.AppendTime)}
	h.Checksum = wire.ExtendChecksum(s.At.Checksum, s.Out[head+wire.BatchHeaderLen:])
	wire.PutBatchHeader(s.Out[head:], h)
	s.At = Position{Last: h.Last(), Checksum: h.Checksum, AppendTime: h.AppendTime}
	return nil
}

func (s *Filter) fits(record []byte, since int64) (bool, error) {
	var r wire.Record
	if _, err := wire.DecodeRecord(record, &r); err != nil {
		return false, err
	}
	return s.Selection.Matches(core.Letter{ID: r.ID, Since: since, Attempts: int(r.Attempts), Reason: r.ReasonCode, Error: r.Reason}), nil
}

// Copy has a replica of a staging extent hold these batches, durably. Batches that it already has from an earlier try
// are not sent again. CodeConflict: the replica has other records there, or lacks the records before them.
func Copy(ctx context.Context, store columbav1connect.StoreServiceClient, stage core.Extent, on core.HostID, batches []byte) error {
	disk := stage.Disk(on)
	expected := &pb.StoreIdentity{Store: string(on)}
	if !disk.IsZero() {
		expected.Disk = disk.ID[:]
	}
	resp, err := peer.Call(ctx, 0, store.Fence, &pb.FenceRequest{Extent: convert.ExtentToProto(stage), Expected: expected})
	if err != nil {
		return core.Errorf(core.CodeOf(err), "begin on store %s: %w", on, err)
	}
	has, err := convert.FenceAnswer(resp)
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
	if _, err := peer.Call(ctx, 0, store.Copy, &pb.CopyRequest{Extent: stage.ID.ID[:], Batches: rest, Expected: expected}); err != nil {
		return core.Errorf(core.CodeOf(err), "copy to store %s: %w", on, err)
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
