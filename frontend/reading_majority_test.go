package frontend

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

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
	c.createGroup("/t/a", "g")
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
	})
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("took %v", took)
	}
	store.empty.Store(true)
	_, err := call(t, c.admin.GetQueue, &pb.GetQueueRequest{Path: "/t/a"})
	wantCode(t, "show a queue that the copy lacks", err, core.CodeUnavailable)
	if err != nil && !strings.Contains(err.Error(), "no majority of the metadata") {
		t.Errorf("the error does not say why: %v", err)
	}
}
