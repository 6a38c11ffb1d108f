package outputhost

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/outputhost/intake"
	"github.com/columbamq/columba/outputhost/past"
	"github.com/columbamq/columba/outputhost/sources"
	"github.com/columbamq/columba/wire"
)

const (
	// lookBack is how much earlier than an append its record may seem to be: the clocks of hosts differ, and what is known of the time of an append is when
	// an owner saved its checkpoint last. Owners that die one after another, before they look, save later ones: three of them fit in.
	lookBack    = 2*time.Minute + 3*dispatch.TransferDoubt
	lookTimeout = 10 * time.Second // of one look-up
	// lookBytes bounds what one look-up reads.
	lookBytes = 256 << 20
	// lookPatience is how long a dead letter waits for a look-up that fails before it is appended without one: a second copy is possible then, a loss never.
	lookPatience = 5 * time.Minute
)

// lookUpLetters finds which of some dead letters are in the group's dead letter queue, if they were appended since an instant. Those that were merged or
// purged meanwhile count as long as a store has them. An error says that it could not look everywhere.
func (h *Host) lookUpLetters(ctx context.Context, g *group, since time.Time, want map[past.Life]bool) (found map[past.Life]bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	g.mu.Lock()
	queue := g.mu.record.DLQ
	g.mu.Unlock()
	found = make(map[past.Life]bool)
	left := lookBytes
	for r, err := range metadata.All[metadata.ExtentRecord](ctx, h.deps.Meta, metadata.Extents, queue.String(), metadata.One) {
		if err != nil {
			return found, err
		}
		e := r.Value.Extent
		if err := h.lookUpLettersIn(ctx, e, since, &left, func(l past.Life) {
			if want[l] {
				found[l] = true
			}
		}); err != nil {
			return found, core.Errorf(core.CodeOf(err), "look for dead letters in extent %s: %w", e.ID, err)
		}
		if len(found) == len(want) {
			break
		}
	}
	return found, nil
}

// lookUpLettersIn calls f for each record of an extent that was appended since an instant, whoever reads the extent.
func (h *Host) lookUpLettersIn(ctx context.Context, e core.Extent, since time.Time, left *int, f func(past.Life)) error {
	upTo, stores, err := h.appendedTo(ctx, e, since)
	if err != nil || upTo == 0 {
		return err
	}
	from := h.seekSoon(ctx, stores, e.ID, since)
	for from <= upTo {
		batches, err := h.readSoon(ctx, stores, e.ID, from, upTo)
		switch {
		case core.CodeOf(err) == core.CodeNotFound: // its stores have removed it meanwhile
			return nil
		case err != nil:
			return err
		case *left < len(batches):
			return core.Errorf(core.CodeTooLarge, "more than %d MiB were appended since %s", lookBytes>>20, since.UTC().Format(time.RFC3339))
		}
		*left -= len(batches)
		for len(batches) > 0 {
			batch, _, rest, err := intake.Batch(batches)
			if err != nil {
				return err
			}
			batches = rest
			err = eachRecord(batch.Records, batch.Base, func(_ core.Seq, record []byte) error {
				var r wire.Record
				if _, err := wire.DecodeRecord(record, &r); err != nil {
					return err
				}
				f(past.LifeOf(&r))
				return nil
			})
			if err != nil {
				return err
			}
			from = batch.Last() + 1
		}
	}
	return nil
}

// appendedTo is how far an extent was appended to, acknowledged or not, and the stores to read it from; 0: nothing that was appended since an instant is
// left of it.
func (h *Host) appendedTo(ctx context.Context, e core.Extent, since time.Time) (upTo core.Seq, from []sources.Source, err error) {
	now := h.deps.Now()
	seal, _, err := metadata.Read[metadata.SealRecord](ctx, h.deps.Meta, metadata.Seals, metadata.SealKey(e.ID), metadata.One)
	switch {
	case err != nil && core.CodeOf(err) != core.CodeNotFound:
		return 0, nil, err
	case err == nil && seal.State.HasEnd():
		if !seal.Ended.IsZero() && seal.Ended.Before(since) {
			return 0, nil, nil
		}
		if from = h.sources.All(e, seal.Holders, now); len(from) == 0 && seal.ReadableTo() > 0 && seal.State != core.ExtentRetired {
			return 0, nil, core.Errorf(core.CodeUnavailable, "no store of extent %s is there", e.ID)
		}
		return seal.ReadableTo(), from, nil
	}
	// What is acknowledged is durable on every replica, so one that answers is enough. It may not know yet that it is committed: reads wait for that.
	all := h.sources.Of(e, nil, nil, now)
	err = core.Errorf(core.CodeUnavailable, "no store of extent %s is there", e.ID)
	without := 0
	for _, s := range all {
		cctx, cancel := context.WithTimeout(ctx, replicaTimeout)
		resp, rerr := h.deps.Peers.Store(s.Address).GetReplica(cctx, connect.NewRequest(&pb.GetReplicaRequest{Extent: e.ID.ID[:]}))
		cancel()
		switch rerr = convert.FromRPC(rerr); {
		case rerr == nil && !resp.Msg.Damaged:
			return core.Seq(resp.Msg.Last), []sources.Source{s}, nil
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
func (h *Host) seekSoon(ctx context.Context, stores []sources.Source, extent core.ExtentID, since time.Time) core.Seq {
	for _, s := range stores {
		cctx, cancel := context.WithTimeout(ctx, replicaTimeout)
		resp, err := h.deps.Peers.Store(s.Address).Seek(cctx, connect.NewRequest(&pb.SeekRequest{Extent: extent.ID[:], Time: timestamppb.New(since)}))
		cancel()
		if err == nil {
			return core.Seq(max(resp.Msg.Seq, 1))
		}
	}
	return 1
}
