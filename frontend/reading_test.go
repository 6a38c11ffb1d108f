package frontend

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
	"github.com/columbamq/columba/metadata"
)

func TestGetDepth_SumsOverOwners(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	g := c.createGroup("/t/a", "g")
	c.createGroup("/t/a", "h")
	b := c.addOutput("b")
	for _, owner := range []core.HostID{"a", "b"} {
		e := newExtent(g)
		c.addExtent(e)
		c.assign(g, e, 1, owner)
	}
	depth := func(r *pb.GetDepthRequest) (*pb.GetDepthResponse, error) {
		d := &pb.Depth{Group: r.Group, Ready: 1, InFlight: 2, Delayed: 7, DelayedPublish: 3, DelayedRetry: 4, Blocked: 7, OldestReadyMs: 6, AckRate: 1.3, Extents: 1}
		return &pb.GetDepthResponse{Groups: []*pb.Depth{d}}, nil
	}
	c.out.onDepth, b.onDepth = depth, depth
	d := must(call(t, c.admin.GetDepth, &pb.GetDepthRequest{Queue: "/t/a"}))(t)
	if len(d.Groups) != 2 || d.Groups[1].Group != "h" {
		t.Fatalf("got %v", d)
	}
	want := &pb.Depth{
		Queue: "/t/a", Group: "g", Ready: 2, InFlight: 4, Delayed: 14, DelayedPublish: 6, DelayedRetry: 8, Blocked: 14, OldestReadyMs: 6, Extents: 2,
		AckRate: 2.6, PublishRate: 0.6, DrainMs: 10_000,
	}
	if diff := cmp.Diff(want, d.Groups[0], protocmp.Transform()); diff != "" {
		t.Errorf("two owners (-want +got):\n%s", diff)
	}
	b.onDepth = func(r *pb.GetDepthRequest) (*pb.GetDepthResponse, error) {
		return &pb.GetDepthResponse{Groups: []*pb.Depth{{Group: r.Group}}}, nil
	}
	if d := must(call(t, c.admin.GetDepth, &pb.GetDepthRequest{Queue: "/t/a", Group: "g"}))(t).Groups[0]; d.UnknownExtents != 1 || d.Extents != 1 {
		t.Errorf("an owner that has yet to resume its share: %v", d)
	}
	b.onDepth = func(*pb.GetDepthRequest) (*pb.GetDepthResponse, error) {
		return nil, core.Errorf(core.CodeUnavailable, "down")
	}
	if d := must(call(t, c.admin.GetDepth, &pb.GetDepthRequest{Queue: "/t/a", Group: "g"}))(t).Groups[0]; d.UnknownExtents != 1 || d.Extents != 1 || d.Ready != 1 {
		t.Errorf("an owner that is down: %v", d)
	}
	b.onDepth = func(*pb.GetDepthRequest) (*pb.GetDepthResponse, error) {
		return nil, core.Errorf(core.CodeInternal, "broken")
	}
	_, err := call(t, c.admin.GetDepth, &pb.GetDepthRequest{Queue: "/t/a", Group: "g"})
	wantCode(t, "an owner that is broken", err, core.CodeInternal)
	_, err = call(t, c.admin.GetDepth, &pb.GetDepthRequest{Queue: "/t/a", Group: "none"})
	wantCode(t, "no such group", err, core.CodeNotFound)
	_, err = call(t, c.admin.GetDepth, &pb.GetDepthRequest{Queue: "/t/none"})
	wantCode(t, "no such queue", err, core.CodeNotFound)
	_, err = call(t, c.admin.GetDepth, &pb.GetDepthRequest{Queue: "none"})
	wantCode(t, "bad queue", err, core.CodeBadName)
}

// TestGetDepth_CountsWhatNobodyOwns has an extent of each kind: consumed, sealed, begun, on a store that is away, and
// of dead letters.
func TestGetDepth_CountsWhatNobodyOwns(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	g := c.createGroup("/t/a", "g")
	_, r, err := c.host.svc.group(t.Context(), "/t/a", "g")
	if err != nil {
		t.Fatal(err)
	}
	c.out.onDepth = func(*pb.GetDepthRequest) (*pb.GetDepthResponse, error) { return &pb.GetDepthResponse{}, nil }
	put := func(table metadata.Table, key metadata.Key, value []byte) {
		t.Helper()
		if err := c.store.Put(t.Context(), table, key, value, time.Now(), 0, metadata.One); err != nil {
			t.Fatal(err)
		}
	}
	seal := func(e core.Extent, l core.Seq) {
		t.Helper()
		s := metadata.SealRecord{Extent: e, State: core.ExtentSealed, L: l, Holders: []core.HostID{"a"}, Ended: time.Now().Add(-time.Hour)}
		if err := metadata.Create(t.Context(), c.store, metadata.Seals, metadata.SealKey(e.ID), s); err != nil {
			t.Fatal(err)
		}
	}
	consumed, sealed, begun, away, dead := newExtent(g), newExtent(g), newExtent(g), newExtent(g), newExtent(g)
	away.Replicas = []core.HostID{"elsewhere"}
	dead.Queue = r.DLQ
	for _, e := range []core.Extent{consumed, sealed, begun, away, dead} {
		c.addExtent(e)
	}
	seal(consumed, 100)
	put(metadata.Dones, metadata.DoneKey(r.ID, consumed.ID, 0), []byte(`{"l":100}`))
	seal(sealed, 40) // and half consumed
	state := dispatch.StartAfter(30)
	put(metadata.Checkpoints, metadata.CheckpointKey(r.ID, sealed.ID, 0, core.RunID{}), state.Append(nil))
	later := dispatch.StartAfter(40) // of an epoch that is not the group's
	put(metadata.Checkpoints, metadata.CheckpointKey(r.ID, sealed.ID, 1, core.RunID{}), later.Append(nil))
	d := must(call(t, c.admin.GetDepth, &pb.GetDepthRequest{Queue: "/t/a", Group: "g"}))(t).Groups[0]
	want := &pb.Depth{Queue: "/t/a", Group: "g", Ready: 10 + 5, Dead: 5, Extents: 3, UnknownExtents: 1, PublishRate: 0.3, DrainMs: -1}
	if want.OldestReadyMs = d.OldestReadyMs; d.OldestReadyMs == 0 {
		t.Error("messages are ready, and the oldest has no age")
	}
	if diff := cmp.Diff(want, d, protocmp.Transform()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if _, err := metadata.Change(t.Context(), c.store, metadata.Groups, metadata.GroupKey(r.Queue, "g"), func(g *metadata.GroupRecord) error {
		g.Spec.Delay = time.Hour // what the stores say came within: seq 3 and later
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want.Ready, want.Delayed, want.DelayedGroup = 2, 10+3, 10+3
	d = must(call(t, c.admin.GetDepth, &pb.GetDepthRequest{Queue: "/t/a", Group: "g"}))(t).Groups[0]
	want.OldestReadyMs = d.OldestReadyMs
	if diff := cmp.Diff(want, d, protocmp.Transform()); diff != "" {
		t.Errorf("of a group that delays (-want +got):\n%s", diff)
	}
}

func TestDeadLettersAndPeek_Forwarded(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	g := c.createGroup("/t/a", "g")
	c.out.onDead = func(r *pb.ListDeadLettersRequest) (*pb.ListDeadLettersResponse, error) {
		return &pb.ListDeadLettersResponse{DeadLetters: []*pb.DeadLetter{{Reason: r.Queue + r.Group}}, Next: "n"}, nil
	}
	c.out.onPeek = func(r *pb.PeekRequest) (*pb.PeekResponse, error) {
		return &pb.PeekResponse{Messages: []*pb.StoredMessage{{Receipt: r.Queue}}}, nil
	}
	dead := must(call(t, c.admin.ListDeadLetters, &pb.ListDeadLettersRequest{Queue: "/t/a", Group: "g"}))(t)
	if len(dead.DeadLetters) != 1 || dead.DeadLetters[0].Reason != "/t/ag" || dead.Next != "n" {
		t.Errorf("got %v", dead)
	}
	for _, path := range []string{"/t/a", g.DlqPath} {
		if p := must(call(t, c.admin.Peek, &pb.PeekRequest{Queue: path}))(t); len(p.Messages) != 1 || p.Messages[0].Receipt != path {
			t.Errorf("got %v", p)
		}
	}
	for name, x := range map[string]struct {
		req  *pb.ListDeadLettersRequest
		code core.Code
	}{
		"no group":      {&pb.ListDeadLettersRequest{Queue: "/t/a", Group: "none"}, core.CodeNotFound},
		"no queue":      {&pb.ListDeadLettersRequest{Queue: "/t/none", Group: "g"}, core.CodeNotFound},
		"bad group":     {&pb.ListDeadLettersRequest{Queue: "/t/a"}, core.CodeBadName},
		"bad id":        {&pb.ListDeadLettersRequest{Queue: "/t/a", Group: "g", Id: "x"}, core.CodeBadID},
		"bad token":     {&pb.ListDeadLettersRequest{Queue: "/t/a", Group: "g", After: "x"}, core.CodeBadArgument},
		"bad token id":  {&pb.ListDeadLettersRequest{Queue: "/t/a", Group: "g", After: "x:1"}, core.CodeBadID},
		"huge token":    {&pb.ListDeadLettersRequest{Queue: "/t/a", Group: "g", After: strings.Repeat("1", 1<<20)}, core.CodeBadArgument},
		"negative page": {&pb.ListDeadLettersRequest{Queue: "/t/a", Group: "g", Limit: -1}, core.CodeBadArgument},
		"large page":    {&pb.ListDeadLettersRequest{Queue: "/t/a", Group: "g", Limit: 1001}, core.CodeBadArgument},
	} {
		_, err := call(t, c.admin.ListDeadLetters, x.req)
		wantCode(t, name, err, x.code)
	}
	_, err := call(t, c.admin.Peek, &pb.PeekRequest{Queue: "/t/none"})
	wantCode(t, "peek of no queue", err, core.CodeNotFound)
	_, err = call(t, c.admin.Peek, &pb.PeekRequest{Queue: "/t/a", After: ":"})
	wantCode(t, "peek with a bad token", err, core.CodeBadArgument)
}
