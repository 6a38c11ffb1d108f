// Package replicas owns a controller's calls to the replicas on stores; each call names the disk that it is meant for.
package replicas

import (
	"context"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// Stores are those that a controller knows.
type Stores interface {
	// At is the service of a store, wherever it was last heard of.
	At(id core.HostID) (columbav1connect.StoreServiceClient, error)
	// Patience is how long a call to a store that may hang can take.
	Patience(id core.HostID) time.Duration
	// Heard is told how such a call ended.
	Heard(id core.HostID, rpc error)
}

// Calls are to all stores. Safe for concurrent use.
type Calls struct {
	stores  Stores
	timeout time.Duration
}

// New answers calls that take at most timeout; those that carry batches take longer.
func New(stores Stores, timeout time.Duration) *Calls {
	return &Calls{stores: stores, timeout: timeout}
}

// Fence has a replica take no further appends and say what it has. version is of the holders when the store is to get a
// copy: one that removed it by an older version takes it back.
func (c *Calls) Fence(ctx context.Context, e core.Extent, at core.Place, version uint64) (core.FenceAnswer, error) {
	store, err := c.stores.At(at.Store)
	if err != nil {
		return core.FenceAnswer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.stores.Patience(at.Store))
	defer cancel()
	resp, err := store.Fence(ctx, connect.NewRequest(&pb.FenceRequest{Extent: convert.ExtentToProto(e), Expected: expect(at), Version: version}))
	if err != nil {
		c.stores.Heard(at.Store, err)
		return core.FenceAnswer{}, convert.FromRPC(err)
	}
	return convert.FenceAnswer(resp.Msg)
}

// Seal tells one store the end and the version of the holders; it has both durable when it answers.
func (c *Calls) Seal(ctx context.Context, row metadata.SealRecord, at core.Place, version uint64) error {
	store, err := c.stores.At(at.Store)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	_, err = store.Seal(ctx, connect.NewRequest(&pb.SealReplicaRequest{
		Extent: convert.ExtentToProto(row.Extent), L: uint64(row.L), Checksum: row.Checksum, Version: version, Expected: expect(at),
	}))
	c.stores.Heard(at.Store, err)
	return convert.FromRPC(err)
}

// Remove deletes a replica by the version of the row that decided it. The store refuses a version that it was not told
// before, together with the end, and one that is older than it knows.
func (c *Calls) Remove(ctx context.Context, row metadata.SealRecord, at core.Place) error {
	err := c.remove(ctx, row, at)
	if core.CodeOf(err) != core.CodeConflict {
		return err
	}
	switch serr := c.Seal(ctx, row, at, row.Version); core.CodeOf(serr) {
	case "", core.CodeIncomplete, core.CodeCorrupt, core.CodeConflict: // it keeps the version in any case
		return c.remove(ctx, row, at)
	default:
		return serr
	}
}

func (c *Calls) remove(ctx context.Context, row metadata.SealRecord, at core.Place) error {
	store, err := c.stores.At(at.Store)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	_, err = store.Remove(ctx, connect.NewRequest(&pb.RemoveRequest{Extent: row.Extent.ID.ID[:], Version: row.Version, Expected: expect(at)}))
	if err = convert.FromRPC(err); core.CodeOf(err) == core.CodeNotFound {
		return nil
	}
	return err
}

// Get is what a store says about a replica.
func (c *Calls) Get(ctx context.Context, id core.ExtentID, at core.Place) (*pb.Replica, error) {
	store, err := c.stores.At(at.Store)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	resp, err := store.GetReplica(ctx, connect.NewRequest(&pb.GetReplicaRequest{Extent: id.ID[:], Expected: expect(at)}))
	if err != nil {
		return nil, convert.FromRPC(err)
	}
	return resp.Msg, nil
}

// Verify looks whether a holder has what the row says; CodeCorrupt: it does not.
func (c *Calls) Verify(ctx context.Context, row metadata.SealRecord, at core.Place) error {
	r, err := c.Get(ctx, row.Extent.ID, at)
	if err != nil {
		return err
	}
	last := core.Seq(r.Last)
	end, sum, _ := row.HeldTo()
	bad := r.Damaged || last < end || r.Sealed && core.Seq(r.L) != row.L || last == row.L && r.Checksum != row.Checksum
	if is := r.Checksum; !bad && row.LostFrom > 0 {
		if last > end { // it has some of what was given up
			if is, _, err = c.Checksum(ctx, row.Extent.ID, at, end); err != nil {
				return err
			}
		}
		bad = is != sum
	}
	if bad {
		return core.Errorf(core.CodeCorrupt, "store %s does not hold extent %s as the row says", at.Store, row.Extent.ID)
	}
	return nil
}

// expect is the identity that a call is meant for; a zero disk is any.
func expect(at core.Place) *pb.StoreIdentity {
	out := &pb.StoreIdentity{Store: string(at.Store)}
	if !at.Disk.IsZero() {
		out.Disk = at.Disk.ID[:]
	}
	return out
}
