package inspect

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/wire"
)

const (
	lookBytes   = 256 << 20 // what one look-up of EachSince reads, at most
	looksAtOnce = 8         // instants that EachDue looks for side by side
)

// EachSince implements transfer.Reader.
func (x *Inspector) EachSince(ctx context.Context, queue core.QueueID, since time.Time, f func(*wire.Record) (more bool)) error {
	left := lookBytes
	return x.lookIn(ctx, queue, func(e core.Extent) (bool, error) { return x.eachSinceIn(ctx, e, since, &left, f) })
}

// EachDue implements transfer.Reader.
func (x *Inspector) EachDue(ctx context.Context, queue core.QueueID, due []int64, f func(*wire.Record) (more bool)) error {
	slices.Sort(due)
	due = slices.Compact(due)
	return x.lookIn(ctx, queue, func(e core.Extent) (bool, error) { return x.eachDueIn(ctx, e, due, f) })
}

// lookIn calls look for the extents of a queue until it answers false. One that cannot be read does not hide the
// others. The metadata are read at Quorum: one copy of them may lack an extent, and what is not found is appended
// again.
func (x *Inspector) lookIn(ctx context.Context, queue core.QueueID, look func(core.Extent) (more bool, err error)) error {
	var failed []error
	for r, err := range metadata.ExtentRows(ctx, x.host.Meta(), queue, metadata.Quorum) {
		if err != nil {
			return err
		}
		if err := r.Err(); err != nil {
			failed = append(failed, err)
			continue
		}
		e := r.Value.Extent
		more, err := look(e)
		switch {
		case core.CodeOf(err) == core.CodeNotFound: // its stores have removed it meanwhile
		case err != nil:
			failed = append(failed, core.Errorf(core.CodeOf(err), "look for messages in extent %s: %w", e.ID, err))
		case !more:
			return nil
		}
	}
	return errors.Join(failed...)
}

// eachDueIn calls f for the records of an extent that are due at some instants, one at a time, until it answers false.
func (x *Inspector) eachDueIn(ctx context.Context, e core.Extent, due []int64, f func(*wire.Record) (more bool)) (more bool, err error) {
	if over, err := x.allDue(ctx, e, time.UnixMilli(due[0]-1)); err != nil || over { // of a log, or nothing as late as that
		return true, err
	}
	upTo, stores, err := x.appendedTo(ctx, e, time.Time{})
	if err != nil || upTo == 0 {
		return true, err
	}
	more = true
	var mu sync.Mutex // of more, and of f
	var looks errgroup.Group
	looks.SetLimit(looksAtOnce)
	for _, at := range due {
		looks.Go(func() error {
			return x.dueAt(ctx, stores, e.ID, upTo, at, func(found *pb.ListDueResponse_Record) error {
				var r wire.Record
				if _, err := wire.DecodeRecord(found.Record, &r); err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				more = more && f(&r)
				return nil
			})
		})
	}
	err = looks.Wait()
	return more, err
}

// eachSinceIn calls f for the records of an extent, whoever reads it, until it answers false.
func (x *Inspector) eachSinceIn(ctx context.Context, e core.Extent, since time.Time, left *int, f func(*wire.Record) (more bool)) (more bool, err error) {
	upTo, stores, err := x.appendedTo(ctx, e, since)
	if err != nil || upTo == 0 {
		return true, err
	}
	return x.eachStored(ctx, stores, e.ID, x.seekSoon(ctx, stores, e.ID, since), upTo, func(s stored) (bool, error) {
		if *left -= len(s.record); *left < 0 {
			return false, core.Errorf(core.CodeTooLarge, "more than %d MiB were appended since %s", lookBytes>>20, since.UTC().Format(time.RFC3339))
		}
		var r wire.Record
		if _, err := wire.DecodeRecord(s.record, &r); err != nil {
			return false, err
		}
		return f(&r), nil
	})
}

// appendedTo is how far an extent was appended to, acknowledged or not, and the stores to read it from; 0: nothing that
// was appended since an instant is left of it.
func (x *Inspector) appendedTo(ctx context.Context, e core.Extent, since time.Time) (upTo core.Seq, from []membership.Host, err error) {
	seal, _, err := metadata.Read[metadata.SealRecord](ctx, x.host.Meta(), metadata.Seals, metadata.SealKey(e.ID), metadata.Quorum)
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
	// Any replica may have a record that the others lack, and that the seal keeps: all of them are asked. A store reads
	// only as far as it knows the extent to be committed, so a record that may yet vanish is not found, but waited for.
	all := x.host.Replicas(e)
	heard := 0
	err = core.Errorf(core.CodeUnavailable, "extent %s is not sealed, and a store of it is not there", e.ID)
	for _, s := range all {
		resp, rerr := peer.Call(ctx, replicaTimeout, x.host.Store(s.Address).GetReplica, &pb.GetReplicaRequest{Extent: e.ID.ID[:]})
		switch {
		case core.CodeOf(rerr) == core.CodeNotFound: // it was never opened there
			heard++
		case rerr != nil:
			err = rerr
		case resp.Damaged:
			err = core.Errorf(core.CodeUnavailable, "extent %s is not sealed, and its replica on store %s is damaged", e.ID, s.ID)
		default:
			heard++
			if last := core.Seq(resp.Last); last > upTo {
				upTo, from = last, []membership.Host{s}
			}
		}
	}
	if heard < len(e.Replicas) {
		return 0, nil, err
	}
	return upTo, from, nil
}

// seekSoon is the first seq that was appended since an instant, or 1 when no store says.
func (x *Inspector) seekSoon(ctx context.Context, stores []membership.Host, extent core.ExtentID, since time.Time) core.Seq {
	for _, s := range stores {
		resp, err := peer.Call(ctx, replicaTimeout, x.host.Store(s.Address).Seek, &pb.SeekRequest{Extent: extent.ID[:], Time: timestamppb.New(since)})
		if err == nil {
			return core.Seq(max(resp.Seq, 1))
		}
	}
	return 1
}
