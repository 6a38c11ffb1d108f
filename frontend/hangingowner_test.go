package frontend

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
)

// TestDepth_OfAnOwnerThatHangs: one of two owners hangs. The depth tells what the other one has before the caller gives
// up, and counts the extents of the one that hangs as unknown.
func TestDepth_OfAnOwnerThatHangs(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	g := c.createGroup("/t/a", "g")
	b := c.addOutput("b")
	for _, owner := range []core.HostID{"a", "b"} {
		e := newExtent(g)
		c.addExtent(e)
		c.assign(g, e, 1, owner)
	}
	c.out.onDepth = func(*pb.GetDepthRequest) (*pb.GetDepthResponse, error) {
		return &pb.GetDepthResponse{Groups: []*pb.Depth{{Ready: 5, Extents: 1}}}, nil
	}
	goOn := make(chan struct{})
	b.onDepth = func(*pb.GetDepthRequest) (*pb.GetDepthResponse, error) {
		<-goOn
		return nil, core.Errorf(core.CodeUnavailable, "too late")
	}
	defer close(goOn)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	resp, err := c.host.svc.GetDepth(ctx, connect.NewRequest(&pb.GetDepthRequest{Queue: "/t/a", Group: "g"}))
	if err != nil {
		t.Fatal(err)
	}
	if d := resp.Msg.Groups[0]; d.Ready != 5 || d.Extents != 1 || d.UnknownExtents != 1 {
		t.Errorf("the depth is %v", d)
	}
}

// TestDepthOwners_BoundsEachAnswer: without a deadline, and with that of the caller.
func TestDepthOwners_BoundsEachAnswer(t *testing.T) {
	for has, want := range map[time.Duration]time.Duration{0: depthTimeout, 4 * time.Second: 2 * time.Second, time.Minute: depthTimeout} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			if has > 0 {
				ctx, cancel = context.WithTimeout(ctx, has)
			}
			defer cancel()
			hangs := func(string) rpc[pb.GetDepthRequest, pb.GetDepthResponse] {
				return func(ctx context.Context, _ *connect.Request[pb.GetDepthRequest]) (*connect.Response[pb.GetDepthResponse], error) {
					<-ctx.Done()
					return nil, connect.NewError(connect.CodeDeadlineExceeded, ctx.Err())
				}
			}
			var owners depthOwners
			for _, most := range []time.Duration{want, 0} { // the host is asked once
				began := time.Now()
				_, err := owners.ask(ctx, membership.Host{ID: "a"}, &pb.GetDepthRequest{}, hangs)
				if took := time.Since(began); core.CodeOf(err) != core.CodeDeadline || took != most {
					t.Errorf("of a caller with %s: %v after %s, want that it did not answer in %s", has, err, took, most)
				}
			}
		})
	}
}
