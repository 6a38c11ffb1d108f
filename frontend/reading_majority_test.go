package frontend

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/memory"
)

// noQuorum is metadata that answer calls at One only, once cut is set. Each other call ends with its context.
type noQuorum struct {
	metadata.Store
	majority metadata.Majority
	cut      atomic.Bool
	asked    atomic.Int32 // calls that found no majority
	empty    atomic.Bool  // the copy that answers has no row
}

func (s *noQuorum) Majority() *metadata.Majority { return &s.majority }

func (s *noQuorum) wait(ctx context.Context, c metadata.Consistency) error {
	if !s.cut.Load() || c == metadata.One {
		return nil
	}
	s.asked.Add(1)
	<-ctx.Done()
	return core.Errorf(core.CodeDeadline, "no answer: %w", ctx.Err())
}

func (s *noQuorum) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	if err := s.wait(ctx, c); err != nil {
		return metadata.Row{}, err
	}
	if s.empty.Load() && c == metadata.One {
		return metadata.Row{}, metadata.NoRow(t, k)
	}
	return s.Store.Get(ctx, t, k, c)
}

func (s *noQuorum) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	if err := s.wait(ctx, c); err != nil {
		return nil, false, err
	}
	return s.Store.List(ctx, t, partition, after, limit, c)
}

// asks is one call that is to succeed.
func asks[Q, R any](t *testing.T, f func(context.Context, *connect.Request[Q]) (*connect.Response[R], error), req *Q) func() error {
	return func() error {
		_, err := call(t, f, req)
		return err
	}
}

// ask does calls that succeed, each within 5 s.
func (c *harness) ask(calls map[string]func() error) {
	for what, call := range calls {
		began := time.Now()
		if err := call(); err != nil {
			c.t.Errorf("%s: %v", what, err)
		}
		if took := time.Since(began); took > 5*time.Second {
			c.t.Errorf("%s took %s", what, took)
		}
	}
}

// TestShow_WithoutAMajority: queues and groups are shown from one copy, and only the first call waits for a majority.
func TestShow_WithoutAMajority(t *testing.T) {
	store := &noQuorum{Store: memory.New()}
	c := newHarness(t, store)
	c.createQueue("/t/a")
	e := newExtent(c.createGroup("/t/a", "g"))
	c.addExtent(e)
	c.out.onStuck = func(*pb.WhyStuckRequest) (*pb.WhyStuckResponse, error) { return &pb.WhyStuckResponse{}, nil }
	c.out.onDead = func(*pb.ListDeadLettersRequest) (*pb.ListDeadLettersResponse, error) {
		return &pb.ListDeadLettersResponse{}, nil
	}
	c.out.onTimers = func(*pb.ListTimersRequest) (*pb.PeekResponse, error) { return &pb.PeekResponse{}, nil }
	c.out.onPeek = func(*pb.PeekRequest) (*pb.PeekResponse, error) { return &pb.PeekResponse{}, nil }
	c.out.onRetryQueue = func(*pb.ListRetryQueueRequest) (*pb.ListRetryQueueResponse, error) {
		return &pb.ListRetryQueueResponse{}, nil
	}
	c.out.onDepth = func(*pb.GetDepthRequest) (*pb.GetDepthResponse, error) { return &pb.GetDepthResponse{}, nil }
	store.cut.Store(true)
	began := time.Now()
	if _, err := call(t, c.admin.GetQueue, &pb.GetQueueRequest{Path: "/t/a"}); err != nil {
		t.Errorf("show queue: %v", err)
	}
	if _, err := call(t, c.admin.GetGroup, &pb.GetGroupRequest{Queue: "/t/a", Name: "g"}); err != nil {
		t.Errorf("show group: %v", err)
	}
	if l, err := call(t, c.admin.ListGroups, &pb.ListGroupsRequest{Queue: "/t/a"}); err != nil || len(l.Groups) != 1 {
		t.Errorf("list groups: %v, %v", l, err)
	}
	c.ask(map[string]func() error{
		"depth":           asks(t, c.admin.GetDepth, &pb.GetDepthRequest{Queue: "/t/a", Group: "g"}),
		"why-stuck":       asks(t, c.admin.WhyStuck, &pb.WhyStuckRequest{Queue: "/t/a", Group: "g"}),
		"list extents":    asks(t, c.admin.ListExtents, &pb.ListExtentsRequest{Queue: "/t/a"}),
		"list operations": asks(t, c.admin.ListOperations, &pb.ListOperationsRequest{}),
		"list delayed":    asks(t, c.admin.ListDelayed, &pb.ListDelayedRequest{Queue: "/t/a", Group: "g"}),
		"dlq list":        asks(t, c.admin.ListDeadLetters, &pb.ListDeadLettersRequest{Queue: "/t/a", Group: "g"}),
		"peek":            asks(t, c.admin.Peek, &pb.PeekRequest{Queue: "/t/a"}),
		"show message":    asks(t, c.admin.GetMessage, &pb.GetMessageRequest{Receipt: core.Receipt{Extent: e.ID, Seq: 1}.String()}),
	})
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("took %v", took)
	}
	store.empty.Store(true)
	_, err := call(t, c.admin.GetQueue, &pb.GetQueueRequest{Path: "/t/a"})
	wantCode(t, "show a queue that the copy lacks", err, core.CodeNoMajority)
	if err != nil && !strings.Contains(err.Error(), "no majority of the metadata") {
		t.Errorf("the error does not say why: %v", err)
	}
}

// refused does calls at once that are to be refused within 3 s or, on a slow machine, 5.
func (c *harness) refused(calls map[string]func() error) {
	var all sync.WaitGroup
	for what, call := range calls {
		all.Go(func() {
			began := time.Now()
			err := call()
			wantCode(c.t, what, err, core.CodeNoMajority)
			if took := time.Since(began); took > 5*time.Second || err != nil && !strings.Contains(err.Error(), "nothing can be changed") {
				c.t.Errorf("%s: %v after %s", what, err, took)
			}
		})
	}
	all.Wait()
}

// TestChange_WithoutAMajority: what changes something is refused soon, and says why, and nothing was written.
func TestChange_WithoutAMajority(t *testing.T) {
	store := &noQuorum{Store: memory.New()}
	c := newHarness(t, store)
	c.createQueue("/t/a")
	e := newExtent(c.createGroup("/t/a", "g"))
	c.addExtent(e)
	store.cut.Store(true)
	for store.majority.Holds() { // a change that comes within this moment is sent
		<-time.After(10 * time.Millisecond)
	}
	id := core.NewID(time.Now()).String()
	c.refused(map[string]func() error{
		"create queue":     asks(t, c.admin.CreateQueue, &pb.CreateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/b"}}),
		"update queue":     asks(t, c.admin.UpdateQueue, &pb.UpdateQueueRequest{Spec: &pb.QueueSpec{Path: "/t/a", Status: "disabled"}}),
		"delete queue":     asks(t, c.admin.DeleteQueue, &pb.DeleteQueueRequest{Path: "/t/a"}),
		"create group":     asks(t, c.admin.CreateGroup, &pb.CreateGroupRequest{Spec: &pb.GroupSpec{Queue: "/t/a", Name: "h"}}),
		"update group":     asks(t, c.admin.UpdateGroup, &pb.UpdateGroupRequest{Spec: &pb.GroupSpec{Queue: "/t/a", Name: "g", MaxDeliveries: 9}}),
		"delete group":     asks(t, c.admin.DeleteGroup, &pb.DeleteGroupRequest{Queue: "/t/a", Name: "g"}),
		"create namespace": asks(t, c.admin.CreateNamespace, &pb.CreateNamespaceRequest{Spec: &pb.NamespaceSpec{Name: "/n"}}),
		"purge":            asks(t, c.admin.StartOperation, &pb.StartOperationRequest{Kind: "purge", Queue: "/t/a"}),
		"merge":            asks(t, c.admin.StartOperation, &pb.StartOperationRequest{Kind: "merge", Queue: "/t/a", Group: "g"}),
		"seek":             asks(t, c.admin.SeekGroup, &pb.SeekGroupRequest{Queue: "/t/a", Group: "g", To: "earliest"}),
		"cancel operation": asks(t, c.admin.CancelOperation, &pb.CancelOperationRequest{Id: id}),
		"seal extent":      asks(t, c.admin.SealExtent, &pb.SealExtentAdminRequest{Queue: "/t/a", Extent: e.ID.String()}),
	})
	store.cut.Store(false)
	c.createQueue("/t/b") // nothing of the refused one is there
}

// TestStart_WithoutMetadata: whoever starts the frontend tries again. One that has failed to start can be started
// again.
func TestStart_WithoutMetadata(t *testing.T) {
	store := &losing{Store: memory.New()}
	h, err := New(DefaultConfig(), Deps{Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Meta: store})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	store.lose(0)
	if err := h.Start(ctx); core.CodeOf(err).Exit() != core.ExitUnavailable || ctx.Err() != nil {
		t.Errorf("start without metadata: %v, %v", err, ctx.Err())
	}
	store.lose(-1)
	if err := h.Start(ctx); err != nil {
		t.Errorf("start afterwards: %v", err)
	}
	if err := h.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// noneThere is metadata of several copies, of which none is reached once away is set.
type noneThere struct {
	metadata.Store
	majority metadata.Majority
	away     atomic.Bool
}

func (s *noneThere) Majority() *metadata.Majority { return &s.majority }

func (s *noneThere) gone() error {
	if s.away.Load() {
		return core.Errorf(core.CodeUnavailable, "Cassandra: no hosts available in the pool")
	}
	return nil
}

func (s *noneThere) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	if err := s.gone(); err != nil {
		return metadata.Row{}, err
	}
	return s.Store.Get(ctx, t, k, c)
}

func (s *noneThere) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	if err := s.gone(); err != nil {
		return nil, false, err
	}
	return s.Store.List(ctx, t, partition, after, limit, c)
}

// TestReads_WhileNoCopyAnswers: in an outage of all metadata each read has the same code, and none says that something
// was to be changed.
func TestReads_WhileNoCopyAnswers(t *testing.T) {
	store := &noneThere{Store: memory.New()}
	c := newHarness(t, store)
	c.createQueue("/t/a")
	c.createGroup("/t/a", "g")
	store.away.Store(true)
	for what, read := range map[string]func() error{
		"list queues":   asks(t, c.admin.ListQueues, &pb.ListQueuesRequest{}),
		"list groups":   asks(t, c.admin.ListGroups, &pb.ListGroupsRequest{Queue: "/t/a"}),
		"show queue":    asks(t, c.admin.GetQueue, &pb.GetQueueRequest{Path: "/t/a"}),
		"list extents":  asks(t, c.admin.ListExtents, &pb.ListExtentsRequest{Queue: "/t/a"}),
		"publish route": asks(t, c.msgs.PublishRoute, &pb.PublishRouteRequest{Queue: "/t/a"}),
		"consume route": asks(t, c.msgs.ConsumeRoute, &pb.ConsumeRouteRequest{Queue: "/t/a", Group: "g"}),
	} {
		err := read()
		wantCode(t, what, err, core.CodeNoMajority)
		if err != nil && strings.Contains(err.Error(), "changed") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
