package frontend

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/serving"
)

func one(context.Context, *pb.PullRequest) (*pb.PullResponse, error) {
	return &pb.PullResponse{Messages: []*pb.PulledMessage{{Receipt: "r", Message: &pb.Message{Payload: []byte{0, 255}}}}}, nil
}

func none(context.Context, *pb.PullRequest) (*pb.PullResponse, error) { return &pb.PullResponse{}, nil }

func TestPull_Forwards(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	c.createGroup("/t/a", "g")
	var got atomic.Pointer[pb.PullRequest]
	c.out.onPull = func(ctx context.Context, r *pb.PullRequest) (*pb.PullResponse, error) {
		got.Store(r)
		if _, ok := ctx.Deadline(); !ok {
			t.Error("the call has no deadline")
		}
		return one(ctx, r)
	}
	res := must(call(t, c.msgs.Pull, &pb.PullRequest{Queue: "/t/a", Group: "g", Wait: durationpb.New(30 * time.Second)}))(t)
	if len(res.Messages) != 1 || res.Messages[0].Receipt != "r" || string(res.Messages[0].Message.Payload) != "\x00\xff" {
		t.Errorf("got %v", res)
	}
	if r := got.Load(); r.MaxMessages != 1 || r.Queue != "/t/a" || r.Group != "g" || r.Wait.AsDuration() < 25*time.Second {
		t.Errorf("forwarded %v", r)
	}
}

func TestPull_RefusesBadRequests(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	c.createGroup("/t/a", "g")
	c.createGroup("/t/a", "off")
	must(call(t, c.admin.UpdateGroup, &pb.UpdateGroupRequest{Spec: &pb.GroupSpec{Queue: "/t/a", Name: "off", Status: "disabled"}}))(t)
	c.out.onPull = one
	for name, x := range map[string]struct {
		req  *pb.PullRequest
		code core.Code
	}{
		"wait 61s":     {&pb.PullRequest{Queue: "/t/a", Group: "g", Wait: durationpb.New(61 * time.Second)}, core.CodeBadArgument},
		"negative":     {&pb.PullRequest{Queue: "/t/a", Group: "g", Wait: durationpb.New(-1)}, core.CodeBadArgument},
		"1001":         {&pb.PullRequest{Queue: "/t/a", Group: "g", MaxMessages: 1001}, core.CodeBadArgument},
		"fewer than 0": {&pb.PullRequest{Queue: "/t/a", Group: "g", MaxMessages: -1}, core.CodeBadArgument},
		"no group":     {&pb.PullRequest{Queue: "/t/a", Group: "none"}, core.CodeNotFound},
		"bad group":    {&pb.PullRequest{Queue: "/t/a", Group: "a b"}, core.CodeBadName},
		"no queue":     {&pb.PullRequest{Queue: "/t/none", Group: "g"}, core.CodeNotFound},
		"disabled":     {&pb.PullRequest{Queue: "/t/a", Group: "off"}, core.CodeDisabled},
	} {
		_, err := call(t, c.msgs.Pull, x.req)
		wantCode(t, name, err, x.code)
	}
}

func TestPull_AsksEveryOwner(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	g := c.createGroup("/t/a", "g")
	b := c.addOutput("b")
	c.assign(g, newExtent(g), 1, "a")
	c.assign(g, newExtent(g), 1, "b")
	b.onPull = one
	broken := func(context.Context, *pb.PullRequest) (*pb.PullResponse, error) {
		return nil, core.Errorf(core.CodeUnavailable, "down")
	}
	for name, f := range map[string]func(context.Context, *pb.PullRequest) (*pb.PullResponse, error){"empty": none, "broken": broken} {
		c.out.onPull = f
		for range 10 {
			if res := must(call(t, c.msgs.Pull, &pb.PullRequest{Queue: "/t/a", Group: "g"}))(t); len(res.Messages) != 1 {
				t.Fatalf("a is %s: got %v, want the message of b", name, res)
			}
		}
	}
	c.out.onPull, b.onPull = broken, broken
	_, err := call(t, c.msgs.Pull, &pb.PullRequest{Queue: "/t/a", Group: "g", Wait: durationpb.New(time.Minute)})
	wantCode(t, "both are broken", err, core.CodeUnavailable)
	var asked atomic.Int32
	count := func(context.Context, *pb.PullRequest) (*pb.PullResponse, error) {
		asked.Add(1)
		return &pb.PullResponse{}, nil
	}
	c.out.onPull, b.onPull = count, count
	res := must(call(t, c.msgs.Pull, &pb.PullRequest{Queue: "/t/a", Group: "g", Wait: durationpb.New(3 * pullPause)}))(t)
	if n := asked.Load(); len(res.Messages) != 0 || n < 4 || n > 10 {
		t.Errorf("both are empty and do not wait: got %v after %d questions, want 4 to 10", res, n)
	}
}

// TestPull_LongPollsLeaveRoom has as many pulls wait as may.
func TestPull_LongPollsLeaveRoom(t *testing.T) {
	c := newHarness(t, nil, func(cfg *Config) { cfg.MaxCalls, cfg.MaxPolls = 4, 4 })
	c.createQueue("/t/a")
	c.createGroup("/t/a", "g")
	waits, end := make(chan struct{}), make(chan struct{})
	c.out.onPull = func(ctx context.Context, r *pb.PullRequest) (*pb.PullResponse, error) {
		if r.GetWait().AsDuration() > 0 {
			close(waits)
			<-end
		}
		return one(ctx, r)
	}
	poll := &pb.PullRequest{Queue: "/t/a", Group: "g", Wait: durationpb.New(30 * time.Second)}
	first := make(chan error, 1)
	go func() {
		_, err := call(t, c.msgs.Pull, poll)
		first <- err
	}()
	<-waits
	_, err := call(t, c.msgs.Pull, poll) // a group has a quarter
	wantCode(t, "another poll of the group", err, core.CodeThrottled)
	must(call(t, c.msgs.Pull, &pb.PullRequest{Queue: "/t/a", Group: "g"}))(t)
	must(call(t, c.admin.GetQueue, &pb.GetQueueRequest{Path: "/t/a"}))(t)
	close(end)
	if err := <-first; err != nil {
		t.Error(err)
	}
}

// TestPull_WaitsInLine has many pulls of one group wait: few of them ask the owner at once, and each gets a message as
// soon as there is one.
func TestPull_WaitsInLine(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	c.createGroup("/t/a", "g")
	var asking, most atomic.Int32
	messages := make(chan struct{})
	c.out.onPull = func(ctx context.Context, r *pb.PullRequest) (*pb.PullResponse, error) {
		n := asking.Add(1)
		defer asking.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		select {
		case <-messages:
			return one(ctx, r)
		case <-ctx.Done():
			return none(ctx, r)
		}
	}
	const pulls = 4 * pullTurns
	answers := make(chan int, pulls+1)
	poll := func(wait time.Duration) {
		res, err := call(t, c.msgs.Pull, &pb.PullRequest{Queue: "/t/a", Group: "g", Wait: durationpb.New(wait)})
		if err != nil {
			t.Error(err)
		}
		answers <- len(res.GetMessages())
	}
	for range pulls {
		go poll(30 * time.Second)
	}
	for c.host.svc.turns.Waiting() < pulls-pullTurns || asking.Load() < pullTurns {
		runtime.Gosched()
	}
	go poll(10 * time.Millisecond) // ends in line
	if n := <-answers; n != 0 {
		t.Errorf("a pull whose wait ended in line got %d messages", n)
	}
	for range pulls {
		messages <- struct{}{}
	}
	for range pulls {
		if n := <-answers; n != 1 {
			t.Errorf("a pull got %d messages, want 1", n)
		}
	}
	if n := most.Load(); n != pullTurns {
		t.Errorf("%d pulls asked at once, want %d", n, pullTurns)
	}
}

// TestPull_AsksNoOwnerWithoutRoomForTheAnswer, so that no message is locked for an answer that cannot be sent.
func TestPull_AsksNoOwnerWithoutRoomForTheAnswer(t *testing.T) {
	c := newHarness(t, nil)
	c.createQueue("/t/a")
	c.createGroup("/t/a", "g")
	var asked, waited atomic.Int32
	c.out.onPull = func(ctx context.Context, r *pb.PullRequest) (*pb.PullResponse, error) {
		asked.Add(1)
		return one(ctx, r)
	}
	var full error = core.Errorf(core.CodeThrottled, "no room")
	ctx := serving.WithAnswerRoom(t.Context(), func(context.Context) error { waited.Add(1); return full })
	pull := func(wait time.Duration) error {
		_, err := c.host.svc.Pull(ctx, connect.NewRequest(&pb.PullRequest{Queue: "/t/a", Group: "g", Wait: durationpb.New(wait)}))
		return err
	}
	for _, wait := range []time.Duration{0, time.Second} {
		wantCode(t, "without room", pull(wait), core.CodeThrottled)
	}
	if asked.Load() != 0 || waited.Load() != 2 {
		t.Errorf("the owner was asked %d times, and %d of 2 pulls waited for room", asked.Load(), waited.Load())
	}
	full = nil
	if err := pull(0); err != nil || asked.Load() != 1 {
		t.Errorf("with room: %v, and the owner was asked %d times", err, asked.Load())
	}
}
