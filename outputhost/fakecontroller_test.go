package outputhost

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/core"
)

// fakeController answers for what shares an output host has, once it is ready. Pages and answers hold two lists.
type fakeController struct {
	columbav1connect.UnimplementedControllerServiceHandler
	id      string
	stuck   bool // answers the first page again and again
	ready   atomic.Bool
	hung    atomic.Bool   // answers nothing
	counted atomic.Uint64 // hand-overs
	lost    atomic.Bool   // its session lease
	keeps   atomic.Bool   // its lists of extents that it made without a majority
	again   atomic.Bool   // it answers as another run
	renewed atomic.Int64
	pages   atomic.Int64 // of versions, that were answered
	asked   atomic.Int64 // lists that were answered
	mu      struct {
		sync.Mutex
		lists   map[core.QueueID]*pb.AssignmentList
		counter uint64
		foreign map[core.QueueID]bool // of another controller
		heard   []*pb.BreakerOpening  // of the host, in its last renewal
		open    []*pb.BreakerOpening  // of others, as of …
		opens   uint64                // … this counter
	}
}

const fakePage = 2

// set makes the list of a queue, newer than all others.
func (c *fakeController) set(queue core.QueueID, list ...*pb.Assignment) *pb.AssignmentList {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.lists == nil {
		c.mu.lists = make(map[core.QueueID]*pb.AssignmentList)
	}
	c.mu.counter++
	l := &pb.AssignmentList{Queue: queue.ID[:], Version: versionBy(c.id, c.mu.counter), Assignments: list}
	c.mu.lists[queue] = l
	return l
}

func (c *fakeController) forget(queue core.QueueID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.lists, queue)
}

func (c *fakeController) RenewShares(ctx context.Context, req *connect.Request[pb.RenewSharesRequest]) (*connect.Response[pb.RenewSharesResponse], error) {
	if c.hung.Load() {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	c.renewed.Add(1)
	out := &pb.RenewSharesResponse{Handovers: c.counted.Load(), Held: !c.lost.Load(), Minority: c.keeps.Load(), Run: versionBy(c.id, 0).Run}
	if c.again.Load() {
		out.Run[0]++
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.heard = req.Msg.Openings
	if out.OpeningsCounter = c.mu.opens; c.mu.opens != req.Msg.OpeningsCounter {
		out.Openings = c.mu.open
	}
	return connect.NewResponse(out), nil
}

func (c *fakeController) ListAssignments(_ context.Context, req *connect.Request[pb.ListAssignmentsRequest]) (*connect.Response[pb.ListAssignmentsResponse], error) {
	if !c.ready.Load() {
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("not ready"))
	}
	c.pages.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	out := &pb.ListAssignmentsResponse{}
	for _, l := range c.mu.lists {
		if c.stuck || bytes.Compare(l.Queue, req.Msg.After) > 0 {
			out.Lists = append(out.Lists, &pb.QueueVersion{Queue: l.Queue, Version: l.Version})
		}
	}
	slices.SortFunc(out.Lists, func(a, b *pb.QueueVersion) int { return bytes.Compare(a.Queue, b.Queue) })
	out.More = len(out.Lists) > fakePage
	out.Lists = out.Lists[:min(len(out.Lists), fakePage)]
	return connect.NewResponse(out), nil
}

func (c *fakeController) GetAssignments(_ context.Context, req *connect.Request[pb.GetAssignmentsRequest]) (*connect.Response[pb.GetAssignmentsResponse], error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := &pb.GetAssignmentsResponse{}
	for _, k := range req.Msg.Known[:min(len(req.Msg.Known), fakePage)] {
		out.Done++
		queue := core.QueueID{ID: core.ID(k.Queue)}
		l := c.mu.lists[queue]
		switch {
		case c.mu.foreign[queue]:
			continue
		case l == nil:
			c.mu.counter = max(c.mu.counter, k.Version.GetCounter()) + 1
			l = &pb.AssignmentList{Queue: queue.ID[:], Version: versionBy(c.id, c.mu.counter)}
		case k.Version.GetCounter() >= l.Version.Counter && k.Version.GetController() != l.Version.Controller:
			c.mu.counter = max(c.mu.counter, k.Version.GetCounter()) + 1
			l.Version = versionBy(c.id, c.mu.counter)
		}
		c.asked.Add(1)
		out.Lists = append(out.Lists, l)
	}
	return connect.NewResponse(out), nil
}
