package controller

import (
	"context"
	"sync"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/seal"
	"github.com/columbamq/columba/wire"
)

const (
	// copyBytes is how much of a tail is copied by one call.
	copyBytes = 8 << 20
	// tailBytes is how much a seal copies before it answers; what lacks more is completed by repair.
	tailBytes = 4 << 20
	// tailTimeout bounds those copies.
	tailTimeout = time.Second
	// rangeTimeout bounds the reading and the writing of one range.
	rangeTimeout = 15 * time.Second
)

// sourceError is a failure to read what was to be copied.
type sourceError struct{ error }

func (e sourceError) Unwrap() error { return e.error }

// complete brings the counting replicas that are a little short up to the end, side by side, and answers all holders then.
func (h *Host) complete(ctx context.Context, e core.Extent, d seal.Decision, in seal.Input) []core.Place {
	ctx, cancel := context.WithTimeout(ctx, tailTimeout)
	defer cancel()
	holders := make([]core.Place, 0, len(d.Counting))
	for _, id := range d.Holders {
		holders = append(holders, placeIn(in, id))
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, c := range d.Copies {
		if in.Answers[c.From].Bytes > in.Answers[c.To].Bytes+tailBytes {
			continue
		}
		wg.Go(func() {
			t := tail{from: placeIn(in, c.From), to: placeIn(in, c.To), first: c.First, last: c.Last}
			if err := h.copyTail(ctx, e.ID, t, nil); err != nil {
				h.log.Warn("a replica was not completed", "extent", e.ID, "store", c.To, "err", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			holders = append(holders, t.to)
		})
	}
	wg.Wait()
	return holders
}

func placeIn(in seal.Input, id core.HostID) core.Place {
	return core.Place{Store: id, Disk: in.Answers[id].Identity.Disk}
}

// tail is what one replica lacks and another one has.
type tail struct {
	from, to    core.Place
	first, last core.Seq
}

// copyTail brings a replica up to the end, range by range. pace, when there is one, is asked before each of them.
func (h *Host) copyTail(ctx context.Context, id core.ExtentID, t tail, pace func(ctx context.Context, bytes int) error) error {
	to, err := h.storeAt(t.to.Store)
	if err != nil {
		return err
	}
	for next := t.first; next <= t.last; {
		batches, err := h.readRange(ctx, t.from, id, next, t.last)
		if err != nil {
			return sourceError{err}
		}
		last, err := lastOf(batches)
		if err != nil {
			return sourceError{err}
		}
		if pace != nil {
			if err := pace(ctx, len(batches)); err != nil {
				return err
			}
		}
		if err := writeRange(ctx, to, id, expect(t.to.Store, t.to.Disk), batches); err != nil {
			return err
		}
		next = last.Last() + 1
	}
	return nil
}

func (h *Host) readRange(ctx context.Context, from core.Place, id core.ExtentID, first, last core.Seq) ([]byte, error) {
	store, err := h.storeAt(from.Store)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, rangeTimeout)
	defer cancel()
	resp, err := store.ReadRange(ctx, connect.NewRequest(&pb.ReadRangeRequest{
		Extent: id.ID[:], From: uint64(first), UpTo: uint64(last), MaxBytes: copyBytes, Copy: true, Expected: expect(from.Store, from.Disk),
	}))
	if err != nil {
		return nil, convert.FromRPC(err)
	}
	return resp.Msg.Batches, nil
}

func writeRange(ctx context.Context, to columbav1connect.StoreServiceClient, id core.ExtentID, expected *pb.StoreIdentity, batches []byte) error {
	ctx, cancel := context.WithTimeout(ctx, rangeTimeout)
	defer cancel()
	_, err := to.Copy(ctx, connect.NewRequest(&pb.CopyRequest{Extent: id.ID[:], Batches: batches, Expected: expected}))
	return convert.FromRPC(err)
}

// expect is the identity that a call is meant for; a zero disk is any.
func expect(id core.HostID, disk core.DiskID) *pb.StoreIdentity {
	out := &pb.StoreIdentity{Store: string(id)}
	if !disk.IsZero() {
		out.Disk = disk.ID[:]
	}
	return out
}

// lastOf is the last of a run of batches.
func lastOf(batches []byte) (wire.BatchHeader, error) {
	var last wire.BatchHeader
	for len(batches) > 0 {
		b, rest, err := wire.NextBatch(batches)
		if err != nil {
			return last, err
		}
		last, batches = b.BatchHeader, rest
	}
	if last.Count == 0 {
		return last, core.Errorf(core.CodeIncomplete, "the source has nothing more to copy")
	}
	return last, nil
}

// checksumAt asks a fenced replica for the rolling checksum at l; whole is false when none of its batches ends there.
func (h *Host) checksumAt(ctx context.Context, id core.ExtentID, at core.Place, l core.Seq) (sum uint32, whole bool, err error) {
	if l == 0 {
		return 0, true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, h.cfg.CallTimeout)
	defer cancel()
	batches, err := h.readRange(ctx, at, id, l, l)
	if err != nil {
		return 0, false, err
	}
	b, err := lastOf(batches)
	if err != nil {
		return 0, false, err
	}
	return b.Checksum, b.Last() == l, nil
}
