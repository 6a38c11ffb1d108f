package inputhost

import (
	"context"
	"errors"
	"strings"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/duty"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/membership"
)

type controllerClient = columbav1connect.ControllerServiceClient

// ask puts a question to the controllers: first to the one whose duty the key is, and to the next one when that is
// silent, or gives an error that elsewhere is true for. Both may do what is asked: of two extents that were made, the
// controller seals the one that is never opened.
func ask[R any](ctx context.Context, h *Host, key core.ID, elsewhere func(error) bool, call func(context.Context, controllerClient) (R, error)) (R, error) {
	members := h.deps.Members.Hosts("controller")
	controllers := make([]peer.Host, len(members))
	for i, m := range members {
		controllers[i] = peer.Host{ID: m.ID, Address: m.Address}
	}
	return peer.Ask(ctx, h.deps.Peers, controllers, peer.Question[R]{Key: key, Patience: duty.Silence, Elsewhere: elsewhere, Call: call})
}

// anotherMay reports whether another controller may do what one did not: that one stops, or does not reach the metadata
// or a store.
func anotherMay(err error) bool {
	switch core.CodeOf(err) {
	case core.CodeUnavailable, core.CodeNoMajority, core.CodeDraining, core.CodeDeadline:
		return true
	}
	return false
}

// refusal is what the controller itself said.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

// answered is the error of a call to the controller.
func answered(err error) error {
	said := connect.IsWireError(err)
	err = convert.FromRPC(err)
	if class := core.CodeOf(err).Class(); said && (class == core.ClassRetryable || class == core.ClassThrottled) {
		return refusal{err}
	}
	return err
}

// order names the order in which controllers are asked about a key, but for silent ones.
func (h *Host) order(key core.ID) string {
	var ids []string
	for _, m := range core.Rank(key.String(), h.deps.Members.Hosts("controller"), func(m membership.Host) core.HostID { return m.ID }) {
		ids = append(ids, string(m.ID))
	}
	return strings.Join(ids, " ")
}

// leaseQuota asks the controllers what this host may publish of the limits of some namespaces, which are all of the
// same order as a key. One that only cannot answer now has no substitute: the others say that they are not responsible.
func (h *Host) leaseQuota(ctx context.Context, key core.ID, req *pb.LeaseQuotaRequest) (*pb.LeaseQuotaResponse, error) {
	self := h.deps.Members.Self()
	req.Input, req.Run = string(self.ID), self.Run.ID[:]
	another := func(err error) bool { return errors.Is(err, core.ErrMoved) || errors.Is(err, core.ErrDraining) }
	resp, err := ask(ctx, h, key, another, func(ctx context.Context, at controllerClient) (*connect.Response[pb.LeaseQuotaResponse], error) {
		return at.LeaseQuota(ctx, connect.NewRequest(req))
	})
	if err != nil {
		return nil, convert.FromRPC(err)
	}
	return resp.Msg, nil
}
