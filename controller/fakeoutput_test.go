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

// fakeOutput takes lists of shares, as an output host does.
type fakeOutput struct {
	columbav1connect.UnimplementedOutputServiceHandler
	id       core.HostID
	run      core.RunID
	mu       sync.Mutex
	lists    map[core.QueueID]*pb.AssignmentList
	minority map[core.QueueID]*pb.AssignmentList // of extents that the controller made without a majority
	silent   bool                                // it renews nothing: see renews
	at       time.Time                           // when the last one came
	hung     chan struct{}                       // calls wait until it is closed
	slow     time.Duration                       // of each call
	came     int                                 // lists
	calls    int
	complete int                   // calls that said that these were all lists
	failing  map[core.QueueID]bool // lists of which not all can be resumed
	unsaved  bool                  // what such lists lack cannot be saved
	rival    bool                  // another controller has always sent a newer list
	floor    core.ListVersion      // lists of unknown queues that are not newer are refused
}

func (o *fakeOutput) Assign(ctx context.Context, req *connect.Request[pb.AssignRequest]) (*connect.Response[pb.AssignResponse], error) {
	o.mu.Lock()
	hung, slow := o.hung, o.slow
	o.came += len(req.Msg.Lists)
	o.calls++
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
	if req.Msg.Complete {
		o.complete++
	}
	out := &pb.AssignResponse{}
	for _, l := range req.Msg.Lists {
		out.Lists = append(out.Lists, o.takeLocked(l))
	}
	return connect.NewResponse(out), nil
}

func (o *fakeOutput) takeLocked(l *pb.AssignmentList) *pb.ListAnswer {
	queue := core.QueueID{ID: core.ID(l.Queue)}
	version, err := convert.ListVersion(l.Version)
	if err != nil {
		return &pb.ListAnswer{Failed: convert.ErrorToProto(err)}
	}
	if o.lists == nil {
		o.lists, o.minority = make(map[core.QueueID]*pb.AssignmentList), make(map[core.QueueID]*pb.AssignmentList)
	}
	lists := o.lists
	if l.Minority {
		lists = o.minority
	}
	newest := o.floor
	if had := lists[queue]; had != nil {
		newest, _ = convert.ListVersion(had.Version)
	} else if len(l.Assignments) == 0 {
		newest = core.ListVersion{}
	}
	if o.rival {
		newest = core.ListVersion{Counter: version.Counter + 1, Controller: "rival"}
	}
	if version.Compare(newest) < 0 {
		return &pb.ListAnswer{Newest: convert.ListVersionToProto(newest)}
	}
	lists[queue], o.at = l, time.Now()
	a := &pb.ListAnswer{Newest: l.Version}
	if o.failing[queue] {
		a.Failed = convert.ErrorToProto(core.Errorf(core.CodeUnavailable, "its rows cannot be read"))
		if o.unsaved {
			a.Newest = nil
		}
	}
	return a
}

// assignments are all that it was last given.
func (o *fakeOutput) assignments() (out []*pb.Assignment) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range o.lists {
		out = append(out, l.Assignments...)
	}
	return out
}

// shares are those by their extents.
func (o *fakeOutput) shares() map[core.ExtentID]*pb.Assignment {
	out := make(map[core.ExtentID]*pb.Assignment)
	for _, a := range o.assignments() {
		out[core.ExtentID{ID: core.ID(a.Extent.Id)}] = a
	}
	return out
}
