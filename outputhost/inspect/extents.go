package inspect

import (
	"context"
	"slices"
	"strings"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/acklevel"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/wire"
)

// peekBytes is how much of an extent one call reads.
const peekBytes = 1 << 20

// scan calls f for the stored messages of a queue that a group reads (the zero one: any of its own) behind the given
// receipt, extent by extent, oldest first, until it says false. Extents that skip is true for are left out; nil: none
// is.
func (x *Inspector) scan(ctx context.Context, queue core.QueueID, group core.GroupID, after core.Receipt, skip func(core.Extent) (bool, error), f func(stored) (bool, error)) error {
	for r, err := range metadata.ExtentRows(ctx, x.shown, queue, metadata.Quorum) {
		if err == nil {
			err = r.Err()
		}
		if err != nil {
			return err
		}
		e := r.Value.Extent
		order := strings.Compare(e.ID.String(), after.Extent.String())
		if order < 0 {
			continue
		}
		if skip != nil {
			skipped, err := skip(e)
			if err != nil {
				return err
			}
			if skipped {
				continue
			}
		}
		from := core.Seq(1)
		if order == 0 {
			if from = after.Seq + 1; from == 0 { // nothing lies behind the largest seq
				continue
			}
		}
		more, err := x.scanExtent(ctx, e, group, from, f)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

func (x *Inspector) scanExtent(ctx context.Context, e core.Extent, group core.GroupID, from core.Seq, f func(stored) (bool, error)) (more bool, err error) {
	upTo, stores, gone, err := x.readable(ctx, e, group)
	if err != nil {
		return false, err
	}
	return x.eachStored(ctx, stores, e.ID, from, upTo, func(s stored) (bool, error) {
		s.taken = gone.Done(s.at.Seq)
		return f(s)
	})
}

// eachStored calls f for the messages of an extent between two seqs, until it says false.
func (x *Inspector) eachStored(ctx context.Context, stores []membership.Host, extent core.ExtentID, from, upTo core.Seq, f func(stored) (bool, error)) (more bool, err error) {
	for from <= upTo {
		batches, err := untilHeard(ctx, func() ([]byte, error) { return x.readRange(ctx, stores, extent, from, upTo, peekBytes) })
		if err != nil {
			return false, err
		}
		if len(batches) == 0 {
			return true, nil
		}
		for len(batches) > 0 {
			batch, rest, err := nextBatch(batches)
			if err != nil {
				return false, err
			}
			batches = rest
			stop := false
			err = EachRecord(batch.Records, batch.Base, func(seq core.Seq, record []byte) error {
				if seq < from || stop {
					return nil
				}
				more, err := f(stored{at: core.Receipt{Extent: extent, Seq: seq}, enqueued: batch.AppendTime, record: record})
				stop = !more
				return err
			})
			if err != nil || stop {
				return false, err
			}
			from = max(from, batch.Last()+1)
		}
	}
	return true, nil
}

// nextBatch splits the first batch off a run of batches, and verifies its records.
func nextBatch(batches []byte) (batch wire.Batch, rest []byte, err error) {
	if batch, rest, err = wire.NextBatch(batches); err == nil {
		_, err = wire.CheckRecords(batch.Records, wire.MaxPayload)
	}
	return batch, rest, err
}

// soon is how long a store may take to hear how far an extent goes that it has: after a crash that is when the extent
// is sealed.
const soon = 5 * time.Second

// untilHeard asks stores again for a while that have not heard of what is to be read.
func untilHeard[T any](ctx context.Context, ask func() (T, error)) (answer T, err error) {
	for waited, wait := time.Duration(0), 20*time.Millisecond; ; waited, wait = waited+wait, 2*wait {
		answer, err = ask()
		if core.CodeOf(err) != core.CodeIncomplete || waited >= soon {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return answer, err
		case <-time.After(wait):
		}
	}
}

// readRange reads from the first store that answers with whole batches: as many as fit into bytes, one at least. When
// none does, the error says that one is behind, if one is, else what the first of them said.
func (x *Inspector) readRange(ctx context.Context, stores []membership.Host, extent core.ExtentID, from, upTo core.Seq, bytes uint32) (batches []byte, err error) {
	note := func(e error) { err = foremost(err, e) }
	req := &pb.ReadRangeRequest{Extent: extent.ID[:], From: uint64(from), UpTo: uint64(upTo), MaxBytes: bytes}
	for i, s := range stores {
		resp, rerr := peer.Call(ctx, within(ctx, rangeTimeout, len(stores)-1-i), x.host.Store(s.Address).ReadRange, req)
		if rerr != nil {
			note(rerr)
			continue
		}
		if len(resp.Batches) == 0 { // it is behind: not the end of what may be read
			note(core.Errorf(core.CodeIncomplete, "store %s has nothing of extent %s from seq %d on; try again", s.ID, extent, from))
			continue
		}
		first, _, bad := nextBatch(resp.Batches)
		if bad == nil && first.Last() < from { // who reads on behind it would ask the same again, and again
			bad = core.Errorf(core.CodeCorrupt, "store %s sends extent %s up to seq %d when it is asked for %d", s.ID, extent, first.Last(), from)
		}
		if bad == nil {
			return resp.Batches, nil
		}
		note(bad)
	}
	return nil, err
}

// foremost of what two stores said: that one is behind, since then it is worth asking again, else what the first said.
func foremost(first, next error) error {
	if first == nil || core.CodeOf(next) == core.CodeIncomplete {
		return next
	}
	return first
}

const (
	replicaTimeout = time.Second     // of a question while there is another store to ask
	rangeTimeout   = 3 * time.Second // of a range, the same
)

// within bounds a question to a store while there are others to ask: each has its part of the time that is left, also
// behind one that hangs.
func within(ctx context.Context, timeout time.Duration, others int) time.Duration {
	if others == 0 {
		return 0
	}
	if until, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(until)/time.Duration(others+1))
	}
	return max(timeout, 1)
}

// mostOf bounds one of the looks at stores by which a question is answered, if its caller does not.
const mostOf = 3 * time.Second

// partOf has one of the looks at stores take half of the time that is left at most: extents of which no store has
// answered by then are answered for as such, before the caller gives up.
func partOf(ctx context.Context) (context.Context, context.CancelFunc) {
	most := mostOf
	if until, ok := ctx.Deadline(); ok {
		most = min(most, time.Until(until)/2)
	}
	return context.WithTimeout(ctx, most)
}

// readable is how far a group may read an extent, and the stores to read it from; without a group, who reads by the
// extent's own queue. A store that never heard of the extent holds nothing of it.
func (x *Inspector) readable(ctx context.Context, e core.Extent, group core.GroupID) (upTo core.Seq, from []membership.Host, gone *acklevel.Window, err error) {
	gone = &acklevel.Window{}
	seal, err := x.seal(ctx, e)
	switch {
	case err == nil && (seal.State == core.ExtentRetired || !seal.Home.ReadBy(group)): // nothing of it is there any more, or not for long
		return 0, nil, gone, nil
	case err == nil && seal.State.HasEnd():
		if from = x.host.Holders(e, seal.Holders); len(from) == 0 && seal.ReadableTo() > 0 {
			return 0, nil, gone, core.Errorf(core.CodeUnavailable, "no store of extent %s is there", e.ID)
		}
		gone, err = seal.Gone()
		return seal.ReadableTo(), from, gone, err
	case err != nil && core.CodeOf(err) != core.CodeNotFound:
		return 0, nil, gone, core.Errorf(core.CodeOf(err), "look up the end of extent %s: %w", e.ID, err)
	}
	err = core.Errorf(core.CodeUnavailable, "no store of extent %s is there", e.ID)
	all := x.host.Replicas(e)
	known, best := false, -1
	for i, s := range all {
		others := len(all) - 1 - i
		if best >= 0 { // one has answered
			others = max(others, 1)
		}
		resp, rerr := peer.Call(ctx, within(ctx, replicaTimeout, others), x.host.Store(s.Address).GetReplica, &pb.GetReplicaRequest{Extent: e.ID.ID[:]})
		switch {
		case rerr == nil && !resp.Damaged:
			if r := ReadableTo(resp); best < 0 || r > upTo { // one that lost its end knows less than the others
				upTo, best = r, i
			}
		case core.CodeOf(rerr) == core.CodeNotFound:
			known = true
		case rerr != nil:
			err = rerr
		}
	}
	switch {
	case best >= 0:
		return upTo, append([]membership.Host{all[best]}, slices.Delete(slices.Clone(all), best, best+1)...), gone, nil
	case known:
		return 0, nil, gone, nil
	}
	return 0, nil, gone, err
}

// ReadableTo is how far a replica lets readers go.
func ReadableTo(r *pb.Replica) core.Seq {
	if r.Sealed {
		return min(core.Seq(r.L), core.Seq(r.Last))
	}
	return min(core.Seq(r.Committed), core.Seq(r.Last))
}

// readerOf is the group that reads a retry queue; zero for any other, whose groups all do.
func (x *Inspector) readerOf(ctx context.Context, path string) (core.GroupID, error) {
	queue, name, ok := core.SplitRetryPath(path)
	if !ok {
		return core.GroupID{}, nil
	}
	g, release, err := x.host.Group(ctx, queue, name)
	if err != nil {
		return core.GroupID{}, err
	}
	defer release()
	return g.ID(), nil
}

// allDue reports whether nothing in an extent waits for its time.
func (x *Inspector) allDue(ctx context.Context, e core.Extent, now time.Time) (bool, error) {
	if e.Kind != core.KindTimer {
		return true, nil
	}
	row, err := x.seal(ctx, e)
	switch {
	case core.CodeOf(err) == core.CodeNotFound:
		return false, nil
	case err != nil:
		return false, core.Errorf(core.CodeOf(err), "look up the end of extent %s: %w", e.ID, err)
	}
	return row.State.HasEnd() && !row.LastDue().After(now), nil
}

// seal reads the seal row of an extent; CodeNotFound: nobody seals it.
func (x *Inspector) seal(ctx context.Context, e core.Extent) (metadata.SealRecord, error) {
	seal, _, err := metadata.Read[metadata.SealRecord](ctx, x.shown, metadata.Seals, metadata.SealKey(e.ID), metadata.Quorum)
	return seal, err
}
