package cli

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
)

const (
	fakeExtent = "01890a5d-ac96-774b-bcce-b302099a8057"
	fakeSealed = "01890a5d-ac96-774b-bcce-b302099a8058"
	fakeID     = "01890a5d-ac97-7000-8000-000000000001"
)

var fakeTime = timestamppb.New(time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC))

// fakeServer is a server of one process's memory; its pages hold two items.
type fakeServer struct {
	columbav1connect.UnimplementedAdminServiceHandler
	columbav1connect.UnimplementedMessageServiceHandler

	mu     sync.Mutex
	queues map[string]*pb.Queue
	groups map[string]*pb.Group

	namespaces map[string]*pb.Namespace

	letters []*pb.DeadLetter
	last    proto.Message // the latest request about tokens or a seal
	away    atomic.Int32  // so many questions for depths are not answered
	slow    atomic.Int32  // so many questions for a later page of queues do not end in time
	silent  atomic.Bool   // some controllers do not answer
	outage  atomic.Bool   // no majority of the metadata answers a look-up of hosts
	strays  atomic.Int64  // extents of unknown queues, beside one
	part    func()        // called by an operation without a group, which is done then, and leaves something; nil: none does
	hang    chan struct{} // when set, ListHosts answers after it is closed
}

func newFakeServer(t *testing.T) (s *fakeServer, addr string) {
	t.Helper()
	s = &fakeServer{queues: map[string]*pb.Queue{}, groups: map[string]*pb.Group{}, namespaces: map[string]*pb.Namespace{}}
	for i := range 3 {
		s.letters = append(s.letters, &pb.DeadLetter{
			Id: fmt.Sprintf("01890a5d-ac97-7000-8000-%012d", i+1), Receipt: fmt.Sprintf("%s:%d", fakeExtent, i+1), Attempts: 10,
			Reason: "exhausted", Error: "line 1\nline 2\x1b[31m", FirstEnqueued: fakeTime, DeadSince: fakeTime, LastConsumer: "worker-1",
			Origin:  fakeExtent + ":7",
			Message: &pb.Message{Payload: [][]byte{[]byte("hello\n" + strings.Repeat("wide ", 20)), {0xff, 0}, nil}[i], Key: "k", Headers: map[string]string{"b": "2", "a": "1"}},
		})
	}
	s.letters[0].History = []*pb.EarlierFailure{
		{Attempts: 3, Reason: "nack", Error: "busy", DeadSince: fakeTime, LastConsumer: "worker-2"}, {Attempts: 1, Reason: "lock_timeout", DeadSince: fakeTime},
	}
	mux := http.NewServeMux()
	mux.Handle(columbav1connect.NewAdminServiceHandler(s))
	mux.Handle(columbav1connect.NewMessageServiceHandler(s))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return s, server.Listener.Addr().String()
}

// setup makes a queue and a group.
func (s *fakeServer) setup(path, group string) error {
	if _, err := s.create(&pb.QueueSpec{Path: path}); err != nil {
		return err
	}
	_, err := s.CreateGroup(context.Background(), connect.NewRequest(&pb.CreateGroupRequest{Spec: &pb.GroupSpec{Queue: path, Name: group}}))
	return err
}

func fail(code core.Code, format string, args ...any) error {
	return convert.RPCError(core.Errorf(code, format, args...))
}

func (s *fakeServer) create(spec *pb.QueueSpec) (*pb.Queue, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queues[spec.Path] != nil {
		return nil, core.Errorf(core.CodeExists, "queue %s already exists", spec.Path)
	}
	full := convert.QueueSpec(spec).WithDefaults(1, 1)
	if err := full.Validate(); err != nil {
		return nil, err
	}
	q := &pb.Queue{Id: fakeID, Spec: convert.QueueSpecToProto(full), Created: fakeTime}
	s.queues[spec.Path] = q
	return q, nil
}

func (s *fakeServer) CreateQueue(_ context.Context, r *connect.Request[pb.CreateQueueRequest]) (*connect.Response[pb.Queue], error) {
	q, err := s.create(r.Msg.Spec)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	return connect.NewResponse(q), nil
}

func (s *fakeServer) CreateQueues(_ context.Context, r *connect.Request[pb.CreateQueuesRequest]) (*connect.Response[pb.CreateQueuesResponse], error) {
	res := &pb.CreateQueuesResponse{}
	for _, spec := range r.Msg.Specs {
		q, err := s.create(spec)
		res.Results = append(res.Results, &pb.CreateQueuesResponse_Result{Queue: q, Error: convert.ErrorToProto(err)})
	}
	return connect.NewResponse(res), nil
}

func (s *fakeServer) queue(path string) (*pb.Queue, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[path]; q != nil {
		return q, nil
	}
	return nil, fail(core.CodeNotFound, "queue %s does not exist", path)
}

func (s *fakeServer) GetQueue(_ context.Context, r *connect.Request[pb.GetQueueRequest]) (*connect.Response[pb.Queue], error) {
	q, err := s.queue(r.Msg.Path)
	return connect.NewResponse(q), err
}

func (s *fakeServer) ListQueues(_ context.Context, r *connect.Request[pb.ListQueuesRequest]) (*connect.Response[pb.ListQueuesResponse], error) {
	if r.Msg.After != "" && s.slow.Add(-1) >= 0 {
		return nil, fail(core.CodeDeadline, "metadata could not be read in time")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	res := &pb.ListQueuesResponse{}
	for _, path := range slices.Sorted(maps.Keys(s.queues)) {
		if strings.HasPrefix(path, r.Msg.Prefix) && path > r.Msg.After {
			if len(res.Queues) == 2 {
				res.Next = res.Queues[1].Spec.Path
				break
			}
			q := proto.CloneOf(s.queues[path])
			if r.Msg.Depths && path != "/other/x" { // of which nothing is known
				q.Depth = &pb.Depth{Queue: path, Ready: 100, InFlight: 5, Dead: 3, OldestReadyMs: 1500, PublishRate: 50.04, Bytes: 10500}
			}
			res.Queues = append(res.Queues, q)
		}
	}
	return connect.NewResponse(res), nil
}

func (s *fakeServer) UpdateQueue(_ context.Context, r *connect.Request[pb.UpdateQueueRequest]) (*connect.Response[pb.Queue], error) {
	s.note(r.Msg)
	q, err := s.queue(r.Msg.Spec.Path)
	if err != nil {
		return nil, err
	}
	proto.Merge(q.Spec, r.Msg.Spec)
	return connect.NewResponse(q), nil
}

func (s *fakeServer) DeleteQueue(_ context.Context, r *connect.Request[pb.DeleteQueueRequest]) (*connect.Response[pb.DeleteQueueResponse], error) {
	if _, err := s.queue(r.Msg.Path); err != nil {
		return nil, err
	}
	s.note(r.Msg)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.queues, r.Msg.Path)
	return connect.NewResponse(&pb.DeleteQueueResponse{}), nil
}

func (s *fakeServer) CreateGroup(_ context.Context, r *connect.Request[pb.CreateGroupRequest]) (*connect.Response[pb.Group], error) {
	spec := r.Msg.Spec
	if _, err := s.queue(spec.Queue); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.groups[spec.Queue+" "+spec.Name] != nil {
		return nil, fail(core.CodeExists, "group %s of %s already exists", spec.Name, spec.Queue)
	}
	full, err := convert.GroupSpec(spec, fakeTime.AsTime())
	if err != nil {
		return nil, convert.RPCError(err)
	}
	g := &pb.Group{Id: fakeID, Spec: convert.GroupSpecToProto(full.WithDefaults()), Created: fakeTime, DlqPath: core.DLQPath(spec.Queue, spec.Name)}
	s.groups[spec.Queue+" "+spec.Name] = g
	s.queues[g.DlqPath] = &pb.Queue{Id: fakeExtent, Spec: &pb.QueueSpec{Path: g.DlqPath, Status: "enabled"}, Created: fakeTime}
	return connect.NewResponse(g), nil
}

func (s *fakeServer) GetGroup(_ context.Context, r *connect.Request[pb.GetGroupRequest]) (*connect.Response[pb.Group], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.groups[r.Msg.Queue+" "+r.Msg.Name]; g != nil {
		return connect.NewResponse(g), nil
	}
	return nil, fail(core.CodeNotFound, "group %s of %s does not exist", r.Msg.Name, r.Msg.Queue)
}

func (s *fakeServer) ListGroups(_ context.Context, r *connect.Request[pb.ListGroupsRequest]) (*connect.Response[pb.ListGroupsResponse], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	res := &pb.ListGroupsResponse{}
	for _, key := range slices.Sorted(maps.Keys(s.groups)) {
		if strings.HasPrefix(key, r.Msg.Queue+" ") {
			res.Groups = append(res.Groups, s.groups[key])
		}
	}
	return connect.NewResponse(res), nil
}

func (s *fakeServer) UpdateGroup(ctx context.Context, r *connect.Request[pb.UpdateGroupRequest]) (*connect.Response[pb.Group], error) {
	s.note(r.Msg)
	g, err := s.GetGroup(ctx, connect.NewRequest(&pb.GetGroupRequest{Queue: r.Msg.Spec.Queue, Name: r.Msg.Spec.Name}))
	if err == nil {
		proto.Merge(g.Msg.Spec, r.Msg.Spec)
	}
	return g, err
}

func (s *fakeServer) DeleteGroup(ctx context.Context, r *connect.Request[pb.DeleteGroupRequest]) (*connect.Response[pb.DeleteGroupResponse], error) {
	if _, err := s.GetGroup(ctx, connect.NewRequest(&pb.GetGroupRequest{Queue: r.Msg.Queue, Name: r.Msg.Name})); err != nil {
		return nil, err
	}
	s.note(r.Msg)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.groups, r.Msg.Queue+" "+r.Msg.Name)
	return connect.NewResponse(&pb.DeleteGroupResponse{}), nil
}

// ConsumeRoute names no output host: none is there.
func (s *fakeServer) ConsumeRoute(ctx context.Context, r *connect.Request[pb.ConsumeRouteRequest]) (*connect.Response[pb.RouteResponse], error) {
	if _, err := s.GetGroup(ctx, connect.NewRequest(&pb.GetGroupRequest{Queue: r.Msg.Queue, Name: r.Msg.Group})); err != nil {
		return nil, err
	}
	if s.outage.Load() {
		return nil, fail(core.CodeNoMajority, "look up queue %s: no majority of the metadata answers, so this cannot be read", r.Msg.Queue)
	}
	return connect.NewResponse(&pb.RouteResponse{}), nil
}

func extent(state string) *pb.ExtentInfo {
	return &pb.ExtentInfo{
		Extent: fakeExtent, Queue: "/demo/a", Kind: "log", State: state, Input: "h1", Replicas: []string{"h1", "h2"}, Copies: []string{"h1", "h2"},
		LastSeq: 42, Bytes: 4096, Created: fakeTime, ReadScope: "own", Wanted: 3, Chain: 4,
	}
}

func (s *fakeServer) ListExtents(context.Context, *connect.Request[pb.ListExtentsRequest]) (*connect.Response[pb.ListExtentsResponse], error) {
	return connect.NewResponse(&pb.ListExtentsResponse{Extents: []*pb.ExtentInfo{extent("sealed"), {Extent: fakeID, Queue: "/demo/a", Kind: "timer", Horizon: "1d", State: "open"}}}), nil
}

func (s *fakeServer) GetExtent(_ context.Context, r *connect.Request[pb.GetExtentRequest]) (*connect.Response[pb.ExtentInfo], error) {
	if r.Msg.Extent == fakeSealed {
		return connect.NewResponse(extent("sealed")), nil
	}
	if r.Msg.Extent != fakeExtent {
		return nil, fail(core.CodeNotFound, "extent %s does not exist; see `columba list extents PATH`", r.Msg.Extent)
	}
	return connect.NewResponse(extent("open")), nil
}

func (s *fakeServer) SealExtent(_ context.Context, r *connect.Request[pb.SealExtentAdminRequest]) (*connect.Response[pb.ExtentInfo], error) {
	s.note(r.Msg)
	return connect.NewResponse(extent("sealed")), nil
}

func (s *fakeServer) VerifyExtent(_ context.Context, r *connect.Request[pb.VerifyExtentRequest]) (*connect.Response[pb.VerifyExtentResponse], error) {
	s.note(r.Msg)
	if r.Msg.Extent == fakeID {
		return nil, fail(core.CodeNotFound, "extent %s does not exist", r.Msg.Extent)
	}
	all := []*pb.VerifiedReplica{
		{Store: "host-a", Outcome: "sound", Bytes: 4096}, {Store: "host-b", Outcome: "lifted", Bytes: 4096},
		{Store: "host-c", Outcome: "damaged", Bytes: 512, Reason: "seq 7 is missing on the disk"},
		{Store: "host-d", Outcome: "unanswered", Reason: "the store is not there; see `columba list hosts`"},
	}
	if r.Msg.Store != "" {
		all = slices.DeleteFunc(all, func(v *pb.VerifiedReplica) bool { return v.Store != r.Msg.Store })
	}
	return connect.NewResponse(&pb.VerifyExtentResponse{Replicas: all}), nil
}

func (s *fakeServer) SealAllOfStore(_ context.Context, r *connect.Request[pb.SealAllOfStoreRequest]) (*connect.Response[pb.SealAllOfStoreResponse], error) {
	s.note(r.Msg)
	switch {
	case r.Msg.Store == "host-there":
		return nil, fail(core.CodeConflict, "store %s is there: it is not gone; see `columba list hosts`", r.Msg.Store)
	case r.Msg.Store != "host-gone":
		return connect.NewResponse(&pb.SealAllOfStoreResponse{}), nil
	case r.Msg.After != "":
		return connect.NewResponse(&pb.SealAllOfStoreResponse{Extents: []*pb.UndecidedExtent{
			{Extent: fakeID, Queue: "/demo/b", Outcome: "undecided", Since: fakeTime, Reason: "bring back store-2", Away: []string{"store-2"}},
		}}), nil
	}
	outcome := "sealed"
	if r.Msg.DryRun {
		outcome = "would_seal"
	}
	return connect.NewResponse(&pb.SealAllOfStoreResponse{Extents: []*pb.UndecidedExtent{
		{Extent: fakeExtent, Queue: "/demo/a", Outcome: outcome, LastSeq: 7, Since: fakeTime, Away: []string{"host-gone"}},
	}, Next: fakeExtent}), nil
}

func (s *fakeServer) DeleteOrphans(_ context.Context, r *connect.Request[pb.DeleteOrphansRequest]) (*connect.Response[pb.DeleteOrphansResponse], error) {
	s.note(r.Msg)
	var silent []string
	if s.silent.Load() {
		silent = []string{"ctl-2", "ctl-3"}
	}
	res := &pb.DeleteOrphansResponse{Silent: silent, Extents: []*pb.OrphanExtent{{Extent: fakeExtent, Queue: fakeID, Stores: []string{"store-1"}, Since: fakeTime}}, Count: 1}
	for range s.strays.Load() {
		res.Extents, res.Count = append(res.Extents, &pb.OrphanExtent{Extent: fakeSealed, Queue: fakeID, Since: fakeTime}), res.Count+1
	}
	return connect.NewResponse(res), nil
}

func (s *fakeServer) ListHosts(ctx context.Context, _ *connect.Request[pb.ListHostsRequest]) (*connect.Response[pb.ListHostsResponse], error) {
	if s.hang != nil {
		select {
		case <-s.hang:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return connect.NewResponse(&pb.ListHostsResponse{KnownSince: fakeTime, Hosts: []*pb.HostInfo{
		{Host: "h1", Roles: []string{"frontend", "storehost"}, Addr: "127.0.0.1:4922", State: "up", Run: fakeID},
		{Host: "h2", Roles: []string{"storehost"}, Addr: "127.0.0.1:4923", State: "down", Since: fakeTime, Run: fakeID},
	}}), nil
}
