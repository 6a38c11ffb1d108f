package frontend

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/peer"
	"github.com/columbamq/columba/internal/publish/publishtest"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/membership/static"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// harness is a frontend over a real network and hosts that answer as a test tells them to.
type harness struct {
	log     syncBuffer // of the host
	t       *testing.T
	host    *Host
	store   metadata.Store
	members *static.Monitor
	admin   columbav1connect.AdminServiceClient
	msgs    columbav1connect.MessageServiceClient
	url     string
	ctl     *fakeController
	out     *fakeOutput // of host "a", which has every role
	stores  *fakeStore
	input   *publishtest.Host
}

// newHarness starts one host with every role.
func newHarness(t *testing.T, store metadata.Store, change ...func(*Config)) *harness {
	t.Helper()
	if store == nil {
		store = memory.New()
	}
	c := &harness{t: t, store: store, ctl: &fakeController{meta: store}, out: &fakeOutput{}, stores: &fakeStore{}, input: &publishtest.Host{}}
	mux := http.NewServeMux()
	mux.Handle(columbav1connect.NewControllerServiceHandler(c.ctl))
	mux.Handle(columbav1connect.NewOutputServiceHandler(c.out))
	mux.Handle(columbav1connect.NewStoreServiceHandler(c.stores))
	c.input.Handle(mux)
	srv := serve(mux)
	self := membership.Host{
		ID: "a", Roles: []string{"controller", "frontend", "inputhost", "outputhost", "storehost"},
		Address: srv.Listener.Addr().String(), Zone: "z", Run: core.RunID{ID: core.NewID(time.Now())},
	}
	var err error
	if c.members, err = static.New(self); err != nil {
		t.Fatal(err)
	}
	peers := peer.NewPool(peer.Config{Log: slog.New(slog.DiscardHandler)})
	cfg := DefaultConfig()
	for _, f := range change {
		f(&cfg)
	}
	c.host, err = New(cfg, Deps{Log: slog.New(slog.NewTextHandler(&c.log, nil)), Metrics: prometheus.NewRegistry(), Meta: store, Peers: peers, Members: c.members})
	if err != nil {
		t.Fatal(err)
	}
	c.host.Routes(mux)
	for range 50 { // with faults: a node starts it again, too
		if err = c.host.Start(t.Context()); err == nil || core.CodeOf(err).Exit() != core.ExitUnavailable {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	c.url = srv.URL
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	c.admin = columbav1connect.NewAdminServiceClient(client, srv.URL)
	c.msgs = columbav1connect.NewMessageServiceClient(client, srv.URL)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := c.host.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
		peers.Close()
		client.CloseIdleConnections()
		c.input.Cut()
		srv.Close()
		store.Close()
	})
	return c
}

// addOutput adds an output host.
func (c *harness) addOutput(id core.HostID) *fakeOutput {
	c.t.Helper()
	out := &fakeOutput{}
	mux := http.NewServeMux()
	mux.Handle(columbav1connect.NewOutputServiceHandler(out))
	srv := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ahead := out.ahead.Load(); ahead != 0 {
			w.Header().Set("Date", time.Now().Add(time.Duration(ahead)).UTC().Format(http.TimeFormat))
		}
		mux.ServeHTTP(w, r)
	}))
	c.t.Cleanup(srv.Close)
	hosts := append(c.members.Hosts(""), membership.Host{ID: id, Roles: []string{"outputhost"}, Address: srv.Listener.Addr().String()})
	if err := c.members.Set(hosts); err != nil {
		c.t.Fatal(err)
	}
	return out
}

func (c *harness) createQueue(path string) *pb.Queue {
	c.t.Helper()
	return must(call(c.t, c.admin.CreateQueue, &pb.CreateQueueRequest{Spec: &pb.QueueSpec{Path: path}}))(c.t)
}

func (c *harness) createGroup(path, name string) *pb.Group {
	c.t.Helper()
	return must(call(c.t, c.admin.CreateGroup, &pb.CreateGroupRequest{Spec: &pb.GroupSpec{Queue: path, Name: name}}))(c.t)
}

// call makes one call and brings its error back to the catalogue.
func call[Q, R any](t testing.TB, f func(context.Context, *connect.Request[Q]) (*connect.Response[R], error), req *Q) (*R, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	resp, err := f(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, convert.FromRPC(err)
	}
	return resp.Msg, nil
}

func must[R any](v R, err error) func(testing.TB) R {
	return func(t testing.TB) R {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func wantCode(t testing.TB, what string, err error, code core.Code) {
	t.Helper()
	if got := core.CodeOf(err); got != code {
		t.Errorf("%s: got %q (%v), want %q", what, got, err, code)
	}
}

// fakeController counts what it was asked, and fails with err.
type fakeController struct {
	columbav1connect.UnimplementedControllerServiceHandler
	mu struct {
		sync.Mutex
		err     error
		started []string // queue id/group name
		heard   []string // queues to look at
		sealed  []*pb.SealExtentRequest
		asked   []proto.Message // about operations and rewinds
		onStart func()
		onSeal  func(*pb.SealAllOfStoreRequest) (*pb.SealAllOfStoreResponse, error)
		stay    []*pb.UndecidedExtent
	}
	meta  metadata.Store // where it starts groups
	hangs atomic.Bool    // when it is told of groups
	fakeDepths
	says    atomic.Pointer[pb.DescribeMajorityResponse] // of the metadata; nil: it has a majority
	orphans []*pb.OrphanExtent                          // set before it is asked; nil: there are 7
}

func (f *fakeController) HearShares(ctx context.Context, req *connect.Request[pb.HearSharesRequest]) (*connect.Response[pb.HearSharesResponse], error) {
	if f.hangs.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.heard = append(f.mu.heard, core.ID(req.Msg.Queue).String())
	return connect.NewResponse(&pb.HearSharesResponse{}), nil
}

func (f *fakeController) SealAllOfStore(_ context.Context, req *connect.Request[pb.SealAllOfStoreRequest]) (*connect.Response[pb.SealAllOfStoreResponse], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out, err := f.mu.onSeal(req.Msg)
	return connect.NewResponse(out), convert.RPCError(err)
}

func (f *fakeController) DeleteOrphans(_ context.Context, req *connect.Request[pb.DeleteOrphansRequest]) (*connect.Response[pb.DeleteOrphansResponse], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.asked = append(f.mu.asked, req.Msg)
	out := &pb.DeleteOrphansResponse{Count: 7}
	if f.orphans != nil {
		out = &pb.DeleteOrphansResponse{Extents: f.orphans, Count: uint32(len(f.orphans))}
	}
	return connect.NewResponse(out), convert.RPCError(f.mu.err)
}

func (f *fakeController) ListUndecided(context.Context, *connect.Request[pb.ListUndecidedRequest]) (*connect.Response[pb.ListUndecidedResponse], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return connect.NewResponse(&pb.ListUndecidedResponse{Extents: f.mu.stay, Count: uint32(len(f.mu.stay))}), convert.RPCError(f.mu.err)
}

func (f *fakeController) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.err = err
}

func (f *fakeController) starts() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.mu.started)
}

func (f *fakeController) StartGroup(ctx context.Context, req *connect.Request[pb.StartGroupRequest]) (*connect.Response[pb.StartGroupResponse], error) {
	f.mu.Lock()
	err, onStart := f.mu.err, f.mu.onStart
	if err == nil {
		f.mu.started = append(f.mu.started, req.Msg.Name)
	}
	f.mu.Unlock()
	if onStart != nil {
		onStart()
	}
	if err == nil {
		_, err = metadata.Change(ctx, f.meta, metadata.Groups, metadata.GroupKey(core.QueueID{ID: core.ID(req.Msg.Queue)}, req.Msg.Name), func(g *metadata.GroupRecord) error {
			if g.ID.ID != core.ID(req.Msg.Group) || g.Spec.Status == core.StatusDeleted {
				return core.Errorf(core.CodeNotFound, "the group was deleted meanwhile")
			}
			g.Started = true
			return nil
		})
	}
	return connect.NewResponse(&pb.StartGroupResponse{}), convert.RPCError(err)
}

func (f *fakeController) SealExtent(_ context.Context, req *connect.Request[pb.SealExtentRequest]) (*connect.Response[pb.SealExtentResponse], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.sealed = append(f.mu.sealed, req.Msg)
	return connect.NewResponse(&pb.SealExtentResponse{}), convert.RPCError(f.mu.err)
}

// fakeOutput answers by its functions; one that is nil answers nothing.
type fakeOutput struct {
	columbav1connect.UnimplementedOutputServiceHandler
	mu struct {
		sync.Mutex
		settled []*pb.SettleRequest
	}
	ahead        atomic.Int64 // of its clock, a time.Duration
	onPull       func(context.Context, *pb.PullRequest) (*pb.PullResponse, error)
	onSettle     func(*pb.SettleRequest) (*pb.SettleResponse, error)
	onDepth      func(*pb.GetDepthRequest) (*pb.GetDepthResponse, error)
	onPeek       func(*pb.PeekRequest) (*pb.PeekResponse, error)
	onDead       func(*pb.ListDeadLettersRequest) (*pb.ListDeadLettersResponse, error)
	onStuck      func(*pb.WhyStuckRequest) (*pb.WhyStuckResponse, error)
	onStand      func(*pb.StandingRequest) (*pb.Standing, error)
	onWaiting    func(*pb.ListWaitingRequest) (*pb.ListWaitingResponse, error)
	onTimers     func(*pb.ListTimersRequest) (*pb.PeekResponse, error)
	onRetryQueue func(*pb.ListRetryQueueRequest) (*pb.ListRetryQueueResponse, error)
}

var errNothing = errors.New("the fake was not told what to answer")

func answer[Q, R any](f func(*Q) (*R, error), req *Q) (*connect.Response[R], error) {
	if f == nil {
		return nil, errNothing
	}
	resp, err := f(req)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	return connect.NewResponse(resp), nil
}

func (f *fakeOutput) Pull(ctx context.Context, req *connect.Request[pb.PullRequest]) (*connect.Response[pb.PullResponse], error) {
	return answer(func(m *pb.PullRequest) (*pb.PullResponse, error) { return f.onPull(ctx, m) }, req.Msg)
}

func (f *fakeOutput) Settle(_ context.Context, req *connect.Request[pb.SettleRequest]) (*connect.Response[pb.SettleResponse], error) {
	f.mu.Lock()
	f.mu.settled = append(f.mu.settled, req.Msg)
	f.mu.Unlock()
	if f.onSettle == nil {
		return connect.NewResponse(&pb.SettleResponse{}), nil
	}
	return answer(f.onSettle, req.Msg)
}

func (f *fakeOutput) GetDepth(_ context.Context, req *connect.Request[pb.GetDepthRequest]) (*connect.Response[pb.GetDepthResponse], error) {
	return answer(f.onDepth, req.Msg)
}

func (f *fakeOutput) Peek(_ context.Context, req *connect.Request[pb.PeekRequest]) (*connect.Response[pb.PeekResponse], error) {
	return answer(f.onPeek, req.Msg)
}

func (f *fakeOutput) ListDeadLetters(_ context.Context, req *connect.Request[pb.ListDeadLettersRequest]) (*connect.Response[pb.ListDeadLettersResponse], error) {
	return answer(f.onDead, req.Msg)
}

func (f *fakeOutput) WhyStuck(_ context.Context, req *connect.Request[pb.WhyStuckRequest]) (*connect.Response[pb.WhyStuckResponse], error) {
	return answer(f.onStuck, req.Msg)
}

func (f *fakeOutput) GetStanding(_ context.Context, req *connect.Request[pb.StandingRequest]) (*connect.Response[pb.Standing], error) {
	return answer(f.onStand, req.Msg)
}

func (f *fakeOutput) ListWaiting(_ context.Context, req *connect.Request[pb.ListWaitingRequest]) (*connect.Response[pb.ListWaitingResponse], error) {
	return answer(f.onWaiting, req.Msg)
}

func (f *fakeOutput) ListTimers(_ context.Context, req *connect.Request[pb.ListTimersRequest]) (*connect.Response[pb.PeekResponse], error) {
	return answer(f.onTimers, req.Msg)
}

func (f *fakeOutput) ListRetryQueue(_ context.Context, req *connect.Request[pb.ListRetryQueueRequest]) (*connect.Response[pb.ListRetryQueueResponse], error) {
	return answer(f.onRetryQueue, req.Msg)
}

func (f *fakeOutput) settled() []*pb.SettleRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.settled
}

type fakeStore struct {
	columbav1connect.UnimplementedStoreServiceHandler
	onVerify func() (*pb.VerifyReplicaResponse, error)
}

func (fakeStore) GetReplica(context.Context, *connect.Request[pb.GetReplicaRequest]) (*connect.Response[pb.Replica], error) {
	return connect.NewResponse(&pb.Replica{Last: 7, Committed: 5, Bytes: 700}), nil
}

// Seek has the messages from seq 3 on come nine seconds ago.
func (fakeStore) Seek(_ context.Context, req *connect.Request[pb.SeekRequest]) (*connect.Response[pb.SeekResponse], error) {
	if time.Since(req.Msg.Time.AsTime()) < 9*time.Second {
		return connect.NewResponse(&pb.SeekResponse{Seq: 8}), nil
	}
	return connect.NewResponse(&pb.SeekResponse{Seq: 3}), nil
}

// syncBuffer is a buffer that is read while others write to it.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// serve speaks HTTP/1 and HTTP/2, as a node does.
func serve(h http.Handler) *httptest.Server {
	srv := httptest.NewUnstartedServer(h)
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetHTTP1(true)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	return srv
}
