package inspect

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/wire"
)

// lookBytes bounds what one look-up of EachSince reads.
const lookBytes = 256 << 20

// EachSince implements transfer.Reader.
func (x *Inspector) EachSince(ctx context.Context, queue core.QueueID, since time.Time, f func(*wire.Record) (more bool)) error {
	left := lookBytes
	for r, err := range metadata.All[metadata.ExtentRecord](ctx, x.host.Meta(), metadata.Extents, queue.String(), metadata.One) {
		if err != nil {
			return err
		}
		e := r.Value.Extent
		more, err := x.eachSinceIn(ctx, e, since, &left, f)
		switch {
		case err != nil:
			return core.Errorf(core.CodeOf(err), "look for messages in extent %s: %w", e.ID, err)
		case !more:
			return nil
		}
	}
	return nil
}

// EachDue implements transfer.Reader.
func (x *Inspector) EachDue(ctx context.Context, queue core.QueueID, group core.GroupID, due time.Time, f func(*wire.Record)) error {
	return x.lookUpDue(ctx, queue, group, due, func(_ core.Receipt, _ int64, record []byte) error {
		var r wire.Record
		if _, err := wire.DecodeRecord(record, &r); err != nil {
			return err
		}
		f(&r)
		return nil
	})
}

// eachSinceIn calls f for the records of an extent, whoever reads it, until it answers false.
func (x *Inspector) eachSinceIn(ctx context.Context, e core.Extent, since time.Time, left *int, f func(*wire.Record) (more bool)) (more bool, err error) {
	upTo, stores, err := x.appendedTo(ctx, e, since)
	if err != nil || upTo == 0 {
		return true, err
	}
	more, err = x.eachStored(ctx, stores, e.ID, x.seekSoon(ctx, stores, e.ID, since), upTo, func(s stored) (bool, error) {
		if *left -= len(s.record); *left < 0 {
			return false, core.Errorf(core.CodeTooLarge, "more than %d MiB were appended since %s", lookBytes>>20, since.UTC().Format(time.RFC3339))
		}
		var r wire.Record
		if _, err := wire.DecodeRecord(s.record, &r); err != nil {
			return false, err
		}
		return f(&r), nil
	})
	if core.CodeOf(err) == core.CodeNotFound { // its stores have removed it meanwhile
		return true, nil
	}
	return more, err
}

// appendedTo is how far an extent was appended to, acknowledged or not, and the stores to read it from; 0: nothing that
// was appended since an instant is left of it.
func (x *Inspector) appendedTo(ctx context.Context, e core.Extent, since time.Time) (upTo core.Seq, from []membership.Host, err error) {
	seal, _, err := metadata.Read[metadata.SealRecord](ctx, x.host.Meta(), metadata.Seals, metadata.SealKey(e.ID), metadata.One)
	switch {
	case err != nil && core.CodeOf(err) != core.CodeNotFound:
		return 0, nil, err
	case err == nil && seal.State.HasEnd():
		if !seal.Ended.IsZero() && seal.Ended.Before(since) {
			return 0, nil, nil
		}
		if from = x.host.Holders(e, seal.Holders); len(from) == 0 && seal.ReadableTo() > 0 && seal.State != core.ExtentRetired {
			return 0, nil, core.Errorf(core.CodeUnavailable, "no store of extent %s is there", e.ID)
		}
		return seal.ReadableTo(), from, nil
	}
	// An acknowledged message is durable on every replica, so one answer is enough. It may not know yet that it is
	// committed: reads wait for that.
	all := x.host.Replicas(e)
	err = core.Errorf(core.CodeUnavailable, "no store of extent %s is there", e.ID)
	without := 0
	for _, s := range all {
		cctx, cancel := context.WithTimeout(ctx, replicaTimeout)
		resp, rerr := x.host.Store(s.Address).GetReplica(cctx, connect.NewRequest(&pb.GetReplicaRequest{Extent: e.ID.ID[:]}))
		cancel()
		switch rerr = convert.FromRPC(rerr); {
		case rerr == nil && !resp.Msg.Damaged:
			return core.Seq(resp.Msg.Last), []membership.Host{s}, nil
		case core.CodeOf(rerr) == core.CodeNotFound:
			without++
		case rerr != nil:
			err = rerr
		}
	}
	if without == len(e.Replicas) { // it was never opened
		return 0, nil, nil
	}
	return 0, nil, err
}

// seekSoon is the first seq that was appended since an instant, or 1 when no store says.
func (x *Inspector) seekSoon(ctx context.Context, stores []membership.Host, extent core.ExtentID, since time.Time) core.Seq {
	for _, s := range stores {
		cctx, cancel := context.WithTimeout(ctx, replicaTimeout)
		resp, err := x.host.Store(s.Address).Seek(cctx, connect.NewRequest(&pb.SeekRequest{Extent: extent.ID[:], Time: timestamppb.New(since)}))
		cancel()
		if err == nil {
			return core.Seq(max(resp.Msg.Seq, 1))
		}
	}
	return 1
}
