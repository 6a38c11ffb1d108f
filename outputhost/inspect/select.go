package inspect

import (
	"context"

	"golang.org/x/sync/errgroup"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/outputhost/inspect/selection"
)

// selectPage is how much of an extent is compared with a selection by one call.
const selectPage = 4 << 20

// SelectDeadLetters compares a part of a sealed extent with a selection, and copies the dead letters that fit to the
// staging extent.
func (x *Inspector) SelectDeadLetters(ctx context.Context, req *pb.SelectDeadLettersRequest) (*pb.SelectDeadLettersResponse, error) {
	e, err := convert.Extent(req.Extent)
	if err != nil {
		return nil, err
	}
	s := selection.Filter{Selection: convert.Selection(req.Selection), At: selection.Position{Last: core.Seq(req.Base), Checksum: req.Checksum, AppendTime: req.AppendTime}}
	if s.Removed, err = (metadata.SealRecord{Extent: e, Removed: req.Removed}).Gone(); err != nil {
		return nil, err
	}
	upTo, stores, _, err := x.readable(ctx, e, core.GroupID{})
	if err != nil {
		return nil, err
	}
	if upTo != core.Seq(req.UpTo) {
		return nil, core.Errorf(core.CodeStale, "extent %s is readable up to %d here, not to its end %d; try again", e.ID, upTo, req.UpTo)
	}
	next := core.Seq(max(req.From, 1))
	if next <= upTo {
		batches, err := x.readRange(ctx, stores, e.ID, next, upTo, selectPage)
		for err == nil && len(batches) > 0 {
			batch, rest, berr := nextBatch(batches)
			if err, batches = berr, rest; err == nil {
				next, err = batch.Last()+1, s.Batch(batch)
			}
		}
		if err != nil {
			return nil, core.Errorf(core.CodeOf(err), "look through extent %s: %w", e.ID, err)
		}
	}
	if err := x.stage(ctx, req.Stage, s.Out); err != nil {
		return nil, err
	}
	matched, _ := s.Matched.Append(nil)
	return &pb.SelectDeadLettersResponse{
		Next: uint64(next), Matched: matched, Looked: s.Looked, Base: uint64(s.At.Last), Checksum: s.At.Checksum, AppendTime: s.At.AppendTime,
	}, nil
}

// stage copies batches to all replicas of a staging extent, side by side; none: a purge copies nothing.
func (x *Inspector) stage(ctx context.Context, to *pb.Extent, batches []byte) error {
	if to == nil || len(batches) == 0 {
		return nil
	}
	e, err := convert.Extent(to)
	if err != nil {
		return err
	}
	var g errgroup.Group
	for _, id := range e.Replicas {
		g.Go(func() error {
			m, ok := x.host.Find(id)
			if !ok {
				return core.Errorf(core.CodeUnavailable, "store %s is not there", id)
			}
			return selection.Copy(ctx, x.host.Store(m.Address), e, id, batches)
		})
	}
	return g.Wait()
}
