package outputhost

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/membership"
)

// relist compares the lists of shares with those of the controllers: at the start until they answer, then now and then.
// In between controllers push.
func (h *Host) relist(ctx context.Context) {
	wait := 50 * time.Millisecond
	for {
		err := h.askShares(ctx)
		pause := h.relistPause()
		if err != nil {
			h.log.Info("cannot get the lists of shares from the controllers; the host asks again", "err", err)
			pause = wait
			wait = min(2*wait, maxRelistRetry)
		} else {
			wait = 50 * time.Millisecond
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		case <-h.relisting:
		}
	}
}

// relistPause grows with the number of lists, so that comparing them costs little.
func (h *Host) relistPause() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return min(h.cfg.RelistEvery+time.Duration(len(h.mu.lists))*relistPerList, maxRelist)
}

const (
	relistPerList  = 2 * time.Millisecond
	maxRelist      = 30 * time.Second
	maxRelistRetry = time.Second
)

// askShares asks all controllers: each has the lists of other queues.
func (h *Host) askShares(ctx context.Context) error {
	controllers := h.deps.Members.Hosts("controller")
	if len(controllers) == 0 {
		return core.Errorf(core.CodeUnavailable, "no controller is known")
	}
	failed := []error{h.saveGiven(ctx, h.groupList())} // of lists that were only confirmed
	for _, c := range controllers {
		failed = append(failed, h.pullLists(ctx, c, h.resume))
	}
	return errors.Join(failed...)
}

// resume applies lists that a controller answered.
func (h *Host) resume(ctx context.Context, lists []*pb.AssignmentList) error {
	answers, err := h.apply(ctx, lists)
	failed := []error{err}
	for _, a := range answers {
		failed = append(failed, a.failed)
	}
	return errors.Join(failed...)
}

// giveUp drops what lists that a controller answered lack. New shares are not resumed.
func (h *Host) giveUp(_ context.Context, lists []*pb.AssignmentList) error {
	for _, l := range lists {
		o, err := offer(l)
		if err != nil {
			return err
		}
		if a, _, ok := h.accept(o); ok {
			a.release()
		}
	}
	return nil
}

// pullLists compares the host's lists with those of a controller, page by page, and has use take those that differ, or of
// which not all is here. Then it asks for the queues that the controller does not name, but whose lists it has made, or
// another controller that is there no more. Lists are used as far as they are newer than the host's.
func (h *Host) pullLists(ctx context.Context, c membership.Host, use func(context.Context, []*pb.AssignmentList) error) error {
	own := h.versions()
	var failed []error
	var after []byte
	for {
		page, err := h.askVersions(ctx, c, after)
		if err != nil {
			return err
		}
		var differ []core.QueueID
		for _, v := range page.Lists {
			queue, version, err := queueVersion(v)
			if err != nil {
				return err
			}
			if bytes.Compare(v.Queue, after) <= 0 {
				return core.Errorf(core.CodeInternal, "controller %s names queue %s again, or not in order", c.ID, queue)
			}
			delete(own, queue)
			if known, whole := h.known(queue); known != version || !whole {
				differ = append(differ, queue)
			}
			after = v.Queue
		}
		failed = append(failed, h.fetch(ctx, c, differ, use))
		if !page.More || len(page.Lists) == 0 {
			break
		}
	}
	controllers := h.deps.Members.Hosts("controller")
	var unnamed []core.QueueID
	for queue, version := range own {
		there := slices.ContainsFunc(controllers, func(m membership.Host) bool { return m.ID == version.Controller })
		if version.Controller == c.ID || !there {
			unnamed = append(unnamed, queue)
		}
	}
	return errors.Join(append(failed, h.fetch(ctx, c, unnamed, use))...)
}

func queueVersion(p *pb.QueueVersion) (queue core.QueueID, v core.ListVersion, err error) {
	if queue.ID, err = core.IDFromBytes(p.GetQueue()); err == nil {
		v, err = convert.ListVersion(p.GetVersion())
	}
	return queue, v, err
}

func (h *Host) askVersions(ctx context.Context, c membership.Host, after []byte) (*pb.ListAssignmentsResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.CallTimeout)
	defer cancel()
	self := h.deps.Members.Self()
	resp, err := h.deps.Peers.Controller(c.Address).ListAssignments(ctx, connect.NewRequest(&pb.ListAssignmentsRequest{Owner: string(self.ID), Run: self.Run.ID[:], After: after}))
	if err != nil {
		return nil, convert.FromRPC(err)
	}
	return resp.Msg, nil
}

// fetch asks a controller for the lists of these queues, and uses them. The answers are newer than what the host has.
func (h *Host) fetch(ctx context.Context, c membership.Host, queues []core.QueueID, use func(context.Context, []*pb.AssignmentList) error) error {
	var failed []error
	for len(queues) > 0 {
		resp, err := h.askLists(ctx, c, queues[:min(len(queues), listsAtOnce)])
		if err != nil {
			return err
		}
		failed = append(failed, use(ctx, resp.Lists))
		queues = queues[min(max(int(resp.Done), 1), len(queues)):]
	}
	return errors.Join(failed...)
}

// listsAtOnce bounds the queues of one question.
const listsAtOnce = 1000

func (h *Host) askLists(ctx context.Context, c membership.Host, queues []core.QueueID) (*pb.GetAssignmentsResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.CallTimeout)
	defer cancel()
	self := h.deps.Members.Self()
	req := &pb.GetAssignmentsRequest{Owner: string(self.ID), Run: self.Run.ID[:], Known: make([]*pb.QueueVersion, len(queues))}
	for i, queue := range queues {
		version, _ := h.known(queue)
		req.Known[i] = &pb.QueueVersion{Queue: queue.ID[:], Version: convert.ListVersionToProto(version)}
	}
	resp, err := h.deps.Peers.Controller(c.Address).GetAssignments(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, convert.FromRPC(err)
	}
	return resp.Msg, nil
}

// leased is what the lease needs of this host.
type leased struct{ h *Host }

// Now implements lease.Owner.
func (x leased) Now() time.Time { return x.h.deps.Now() }

// Renew implements lease.Owner.
func (x leased) Renew(ctx context.Context, controller membership.Host) error {
	self := x.h.deps.Members.Self()
	_, err := x.h.deps.Peers.Controller(controller.Address).RenewShares(ctx, connect.NewRequest(&pb.RenewSharesRequest{Owner: string(self.ID), Run: self.Run.ID[:]}))
	return convert.FromRPC(err)
}

// Dial implements lease.Owner.
func (x leased) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return x.h.deps.Peers.Dial(ctx, network, addr)
}

// Changed implements lease.Owner.
func (x leased) Changed() {
	for _, g := range x.h.groupList() {
		g.pump()
	}
}

// Confirm implements lease.Owner: it gives up what a controller says is not this host's any more; new ones follow.
func (x leased) Confirm(ctx context.Context, controllers []membership.Host) error {
	err := error(core.Errorf(core.CodeUnavailable, "no controller is known"))
	for _, c := range controllers {
		cctx, cancel := context.WithTimeout(ctx, dispatch.OwnerLease)
		err = x.h.pullLists(cctx, c, x.h.giveUp)
		cancel()
		if err == nil {
			poke(x.h.relisting)
			return nil
		}
	}
	return err
}
