package replicas

import (
	"context"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

const (
	// copyBytes is how much of a tail is copied by one call.
	copyBytes = 8 << 20
	// rangeTimeout bounds the reading and the writing of one range.
	rangeTimeout = 15 * time.Second
)

// Copy gives a replica what it lacks and another one has, range by range; unread says that an error is of reading it.
// pace, when there is one, is asked before each range is written.
func (c *Calls) Copy(ctx context.Context, id core.ExtentID, from, to core.Place, first, last core.Seq, pace func(ctx context.Context, bytes int) error) (unread bool, err error) {
	store, err := c.stores.At(to.Store)
	if err != nil {
		return false, err
	}
	for next := first; next <= last; {
		batches, err := c.readRange(ctx, from, id, next, last)
		if err != nil {
			return true, err
		}
		end, err := lastOf(batches)
		if err != nil {
			return true, err
		}
		if pace != nil {
			if err := pace(ctx, len(batches)); err != nil {
				return false, err
			}
		}
		if err := writeRange(ctx, store, id, expect(to), batches); err != nil {
			return false, err
		}
		next = end.Last() + 1
	}
	return false, nil
}

func (c *Calls) readRange(ctx context.Context, from core.Place, id core.ExtentID, first, last core.Seq) ([]byte, error) {
	store, err := c.stores.At(from.Store)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, rangeTimeout)
	defer cancel()
	resp, err := store.ReadRange(ctx, connect.NewRequest(&pb.ReadRangeRequest{
		Extent: id.ID[:], From: uint64(first), UpTo: uint64(last), MaxBytes: copyBytes, Copy: true, Expected: expect(from),
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

// Checksum asks a fenced replica for the rolling checksum at l; whole is false when none of its batches ends there.
func (c *Calls) Checksum(ctx context.Context, id core.ExtentID, at core.Place, l core.Seq) (sum uint32, whole bool, err error) {
	if l == 0 {
		return 0, true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	batches, err := c.readRange(ctx, at, id, l, l)
	if err != nil {
		return 0, false, err
	}
	b, err := lastOf(batches)
	if err != nil {
		return 0, false, err
	}
	return b.Checksum, b.Last() == l, nil
}
