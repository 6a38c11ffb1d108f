package outputhost

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/outputhost/lease"
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

// askShares asks all controllers: each has the lists of other queues. Then it asks all of them for the queues that none
// named: the one that is responsible for such a queue now answers, and the host keeps its list until then.
func (h *Host) askShares(ctx context.Context) error {
	controllers := h.deps.Members.Hosts("controller")
	if len(controllers) == 0 {
		return core.Errorf(core.CodeUnavailable, "no controller is known")
	}
	failed := slices.Collect(maps.Values(h.saveGiven(ctx, h.groupList()))) // of lists that were only confirmed
	own := h.versions()
	var answered []*pulled
	for _, c := range controllers {
		p := &pulled{controller: c, named: make(lease.Named), use: h.resume}
		err := h.pullLists(ctx, p)
		failed = append(failed, err)
		for queue := range p.named {
			delete(own, queue)
		}
		if !p.away {
			answered = append(answered, p)
		}
	}
	unnamed := slices.Collect(maps.Keys(own))
	for _, p := range answered {
		failed = append(failed, h.fetch(ctx, p, unnamed))
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

// pulled is what a controller answers of its lists.
type pulled struct {
	controller membership.Host
	named      lease.Named // its lists, as far as they were named or answered
	away       bool        // it has not answered every page
	use        func(context.Context, []*pb.AssignmentList) error
}

// pullLists compares the host's lists with those of a controller, page by page, and uses those that differ, or of which
// not all is here. Lists are used as far as they are newer than the host's.
func (h *Host) pullLists(ctx context.Context, p *pulled) error {
	self := h.deps.Members.Self()
	var failed []error
	var after []byte
	for {
		page, err := peer.Call(ctx, h.cfg.CallTimeout, h.deps.Peers.Controller(p.controller.Address).ListAssignments,
			&pb.ListAssignmentsRequest{Owner: string(self.ID), Run: self.Run.ID[:], After: after})
		if err != nil {
			p.away = true
			return errors.Join(append(failed, err)...)
		}
		var differ []core.QueueID
		for _, v := range page.Lists {
			queue, version, err := queueVersion(v)
			if err == nil && bytes.Compare(v.Queue, after) <= 0 {
				err = core.Errorf(core.CodeInternal, "controller %s names queue %s again, or not in order", p.controller.ID, queue)
			}
			if err != nil {
				p.away = true
				return errors.Join(append(failed, err)...)
			}
			p.named[queue] = version
			if known, whole := h.known(queue); known != version || !whole {
				differ = append(differ, queue)
			}
			after = v.Queue
		}
		failed = append(failed, h.fetch(ctx, p, differ))
		if !page.More || len(page.Lists) == 0 {
			return errors.Join(failed...)
		}
	}
}

func queueVersion(p *pb.QueueVersion) (queue core.QueueID, v core.ListVersion, err error) {
	if queue.ID, err = core.IDFromBytes(p.GetQueue()); err == nil {
		v, err = convert.ListVersion(p.GetVersion())
	}
	return queue, v, err
}

// fetch asks a controller for the lists of these queues, and uses them. The answers are newer than what the host has.
// The controller sends no list of a queue that it is not responsible for.
func (h *Host) fetch(ctx context.Context, p *pulled, queues []core.QueueID) error {
	var failed []error
	for len(queues) > 0 {
		resp, err := h.askLists(ctx, p.controller, queues[:min(len(queues), listsAtOnce)])
		if err != nil {
			return errors.Join(append(failed, err)...)
		}
		for _, l := range resp.Lists {
			queue, version, err := queueVersion(&pb.QueueVersion{Queue: l.Queue, Version: l.Version})
			if err != nil {
				return errors.Join(append(failed, err)...)
			}
			p.named[queue] = version
		}
		failed = append(failed, p.use(ctx, resp.Lists))
		queues = queues[min(max(int(resp.Done), 1), len(queues)):]
	}
	return errors.Join(failed...)
}

// listsAtOnce bounds the queues of one question.
const listsAtOnce = 1000

func (h *Host) askLists(ctx context.Context, c membership.Host, queues []core.QueueID) (*pb.GetAssignmentsResponse, error) {
	self := h.deps.Members.Self()
	req := &pb.GetAssignmentsRequest{Owner: string(self.ID), Run: self.Run.ID[:], Known: make([]*pb.QueueVersion, len(queues))}
	for i, queue := range queues {
		version, _ := h.known(queue)
		req.Known[i] = &pb.QueueVersion{Queue: queue.ID[:], Version: convert.ListVersionToProto(version)}
	}
	return peer.Call(ctx, h.cfg.CallTimeout, h.deps.Peers.Controller(c.Address).GetAssignments, req)
}
