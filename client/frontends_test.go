package client

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
)

// server is a frontend that counts the calls it gets.
type server struct {
	columbav1connect.UnimplementedAdminServiceHandler
	calls int
	err   error
}

func (s *server) GetQueue(_ context.Context, r *connect.Request[pb.GetQueueRequest]) (*connect.Response[pb.Queue], error) {
	if s.calls++; s.err != nil {
		return nil, convert.RPCError(s.err)
	}
	return connect.NewResponse(&pb.Queue{Id: core.ID{1}.String(), Spec: &pb.QueueSpec{Path: r.Msg.Path}}), nil
}

func (s *server) DeleteQueue(context.Context, *connect.Request[pb.DeleteQueueRequest]) (*connect.Response[pb.DeleteQueueResponse], error) {
	if s.calls++; s.err != nil {
		return nil, convert.RPCError(s.err)
	}
	return connect.NewResponse(&pb.DeleteQueueResponse{}), nil
}

func (s *server) start(t *testing.T) *httptest.Server {
	mux := http.NewServeMux()
	mux.Handle(columbav1connect.NewAdminServiceHandler(s))
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv
}

// TestClient_SurvivesItsFrontend has the first server drain, then die.
func TestClient_SurvivesItsFrontend(t *testing.T) {
	first, second := &server{}, &server{}
	a, b := first.start(t), second.start(t)
	c, err := Dial(limited(t), a.Listener.Addr().String()+", "+b.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	get := func() {
		t.Helper()
		if q, err := c.Admin().GetQueue(limited(t), "/t/q"); err != nil || q.Spec.Path != "/t/q" {
			t.Fatalf("%v, %v", q, err)
		}
	}
	get()
	if first.calls != 1 || second.calls != 0 {
		t.Fatalf("calls: %d and %d, want all at the first", first.calls, second.calls)
	}
	first.err = core.Errorf(core.CodeDraining, "stopping")
	if err := c.Admin().DeleteQueue(limited(t), "/t/q"); err != nil || second.calls != 1 {
		t.Fatalf("a change that the first server refused: %v, %d calls at the second", err, second.calls)
	}
	a.Close()
	get()
	get()
	if first.calls != 2 || second.calls != 3 {
		t.Errorf("calls: %d and %d, want the client to stay at the second", first.calls, second.calls)
	}
	second.err = core.Errorf(core.CodeConflict, "no")
	if err := c.Admin().DeleteQueue(limited(t), "/t/q"); !errors.Is(err, ErrConflict) || second.calls != 4 {
		t.Errorf("an error that is final: %v after %d calls", err, second.calls)
	}
}

// TestDial_SeveralAddresses dials when only the second address has a server, then when none has.
func TestDial_SeveralAddresses(t *testing.T) {
	away, there := &server{}, &server{}
	a, b := away.start(t), there.start(t)
	a.Close()
	first, second := a.Listener.Addr().String(), b.Listener.Addr().String()
	c, err := Dial(limited(t), first+","+second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Admin().GetQueue(limited(t), "/t/q"); err != nil || there.calls != 1 {
		t.Errorf("a call: %v, %d calls at the second address", err, there.calls)
	}
	b.Close()
	_, err = Dial(limited(t), first+","+second)
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "dial tcp "+first) || !strings.Contains(err.Error(), "dial tcp "+second) {
		t.Errorf("no server at either address: %v; want both to be named with their reasons", err)
	}
	for _, bad := range []string{"", first + ",", ",", first + " " + second, "host"} {
		if _, err := Dial(limited(t), bad); !errors.Is(err, ErrBadArgument) {
			t.Errorf("address %q: %v", bad, err)
		}
	}
}

func TestFrontends_LearnKeepsTheGivenAndTheCurrent(t *testing.T) {
	f := newFrontends(nil, []string{"a:1", "b:1"}, 0)
	f.learn([]string{"b:1", "c:1", ""})
	f.failed("a:1")
	f.failed("a:1") // by an older call: not current any more
	if f.current() != "b:1" || f.count() != 3 {
		t.Fatalf("at %s of %d", f.current(), f.count())
	}
	f.failed("b:1")
	f.learn([]string{"c:1", "d:1"})
	if f.current() != "c:1" || !slices.Equal(f.mu.all, []string{"a:1", "b:1", "c:1", "d:1"}) {
		t.Errorf("at %s of %v", f.current(), f.mu.all)
	}
	f.learn([]string{"d:1"})
	if f.current() != "a:1" {
		t.Errorf("the current one has left the cluster: at %s", f.current())
	}
}
