package controller

import (
	"context"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
)

// fakeOutput takes lists of shares.
type fakeOutput struct {
	columbav1connect.UnimplementedOutputServiceHandler
	id   core.HostID
	run  core.RunID
	mu   sync.Mutex
	list *pb.AssignmentList
	at   time.Time     // when it came
	hung chan struct{} // calls wait until it is closed
	slow time.Duration // of each call
	came int           // lists
}

func (o *fakeOutput) Assign(ctx context.Context, req *connect.Request[pb.AssignmentList]) (*connect.Response[pb.AssignResponse], error) {
	o.mu.Lock()
	hung, slow := o.hung, o.slow
	o.came++
	o.mu.Unlock()
	if slow > 0 {
		<-time.After(slow)
	}
	if hung != nil {
		select {
		case <-hung:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Equal(req.Msg.Run, o.run.ID[:]) {
		return nil, convert.RPCError(core.Errorf(core.CodeStale, "another run"))
	}
	if o.list == nil || req.Msg.Version >= o.list.Version {
		o.list, o.at = req.Msg, time.Now()
	}
	return connect.NewResponse(&pb.AssignResponse{}), nil
}

// shares are what it was last given.
func (o *fakeOutput) shares() map[core.ExtentID]*pb.Assignment {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := make(map[core.ExtentID]*pb.Assignment)
	for _, a := range o.list.GetAssignments() {
		out[core.ExtentID{ID: core.ID(a.Extent.Id)}] = a
	}
	return out
}
