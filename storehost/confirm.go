package storehost

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/semaphore"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/storehost/extentlog"
)

// Confirmer says what the seal row of an extent has decided. Nobody else may have a store drop records: its callers are
// not authenticated. CodeConflict: the row says something else; CodeUnavailable: nobody could be asked.
type Confirmer interface {
	// ConfirmEnd confirms an end, and that the row has about this version.
	ConfirmEnd(ctx context.Context, id core.ExtentID, l core.Seq, checksum uint32, version uint64) error
	// ConfirmRemoval confirms that the row has this version and has a store remove its replica by it.
	ConfirmRemoval(ctx context.Context, id core.ExtentID, version uint64, by core.StoreIdentity) error
}

const (
	// confirmTimeout bounds the wait for a confirmation. It is less than a controller waits for a store.
	confirmTimeout = 2 * time.Second
	// askNextAfter is how long a controller may take to answer before the next one is asked, too.
	askNextAfter = 300 * time.Millisecond
	// maxConfirming bounds the calls that ask at once: a flood of them would reach the metadata.
	maxConfirming = 64
)

// Controllers asks the controllers of the cluster.
type Controllers struct {
	Peers   *peer.Pool
	Members membership.Monitor
}

var _ Confirmer = Controllers{}

// ConfirmEnd implements Confirmer.
func (c Controllers) ConfirmEnd(ctx context.Context, id core.ExtentID, l core.Seq, checksum uint32, version uint64) error {
	return c.ask(ctx, id, func(ctx context.Context, at columbav1connect.ControllerServiceClient) (any, error) {
		return at.ConfirmEnd(ctx, connect.NewRequest(&pb.ConfirmEndRequest{Extent: id.ID[:], L: uint64(l), Checksum: checksum, Version: version}))
	})
}

// ConfirmRemoval implements Confirmer.
func (c Controllers) ConfirmRemoval(ctx context.Context, id core.ExtentID, version uint64, by core.StoreIdentity) error {
	return c.ask(ctx, id, func(ctx context.Context, at columbav1connect.ControllerServiceClient) (any, error) {
		return at.ConfirmRemoval(ctx, connect.NewRequest(&pb.ConfirmRemovalRequest{Extent: id.ID[:], Version: version, Store: convert.IdentityToProto(by)}))
	})
}

// ask takes the first answer of a controller: yes, or CodeConflict. Any controller can answer; the extents spread over
// all.
func (c Controllers) ask(ctx context.Context, id core.ExtentID, call func(context.Context, columbav1connect.ControllerServiceClient) (any, error)) error {
	var controllers []peer.Host
	for _, h := range c.Members.Hosts("controller") {
		controllers = append(controllers, peer.Host{ID: h.ID, Address: h.Address})
	}
	unsure := func(err error) bool { return core.CodeOf(err) != core.CodeConflict }
	_, err := peer.Ask(ctx, c.Peers, controllers, peer.Question[any]{Key: id.ID, Patience: askNextAfter, Elsewhere: unsure, Call: call})
	if err = convert.FromRPC(err); err == nil || !unsure(err) {
		return err
	}
	return core.Errorf(core.CodeUnavailable, "nothing is dropped before a controller confirms it from the metadata; try again when one answers: %w", err)
}

// confirming asks, a few calls at once.
type confirming struct {
	asks  Confirmer
	slots *semaphore.Weighted
}

func newConfirming(asks Confirmer) confirming {
	return confirming{asks, semaphore.NewWeighted(maxConfirming)}
}

func (c confirming) do(ctx context.Context, ask func(context.Context, Confirmer) error) error {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	if c.slots.Acquire(ctx, 1) != nil {
		return core.Errorf(core.CodeUnavailable, "%d calls wait for a controller to confirm what they drop; try again", maxConfirming)
	}
	defer c.slots.Release(1)
	return ask(ctx, c.asks)
}

// evident reports whether a seal needs no confirmation. It is that of a replica whose own end it says, in the first
// version that a row with an end has, or it says nothing new. Any other end could cut off records, have the replica
// taken for damaged, or keep copies away; another version could keep honest removals away.
func evident(s extentlog.State, l core.Seq, checksum uint32, version uint64) bool {
	if version > max(1, s.Version) {
		return false
	}
	if s.Sealed {
		return s.L == l
	}
	return s.Last == l && s.Checksum == checksum
}
