package client

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/publish/publishtest"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a server: the look-ups, a fake input host and an output host with one group in memory.
type fake struct {
	columbav1connect.UnimplementedMessageServiceHandler
	columbav1connect.UnimplementedAdminServiceHandler
	input *publishtest.Host
	lock  time.Duration
	hello func(*pb.ConsumeHello) error
	route func() ([]*pb.HostAddress, error)
	once  bool // the group delivers at most once
	flood bool // deliver copies of one message without end, settled by anything
	// greedy has the first credit, however small, answered by all messages.
	greedy bool
	// stream replaces the output host's streams.
	stream func(conn *ws.Conn, number uint32) ws.StreamHandler
	pull   func(*pb.PullRequest) (*pb.PullResponse, error)
	// settle answers acks, nacks and extensions by token.
	settle func(tokens []string) *pb.SettleResponse

	addr   string
	extent core.ExtentID
	wg     sync.WaitGroup
	mu     struct {
		sync.Mutex
		ready    []*fakeMessage
		messages map[core.Seq]*fakeMessage
		streams  map[*fakeStream]bool
		acked    map[core.Seq]int
		returned int
		unseen   int // given back by token
		extended int
		nacks    []wire.Nack
		rejected []string
		reasons  []string // of nacks and rejections by token
		results  int
	}
}

type fakeMessage struct {
	seq     core.Seq
	attempt uint16
	record  []byte
	holder  *fakeStream
}

func startFake(t testing.TB, f *fake) *fake {
	t.Helper()
	f.extent = core.ExtentID{ID: core.NewID(time.Now())}
	f.mu.messages, f.mu.streams, f.mu.acked = map[core.Seq]*fakeMessage{}, map[*fakeStream]bool{}, map[core.Seq]int{}
	if f.lock == 0 {
		f.lock = time.Minute
	}
	if f.input == nil {
		f.input = &publishtest.Host{}
	}
	mux := http.NewServeMux()
	mux.Handle(columbav1connect.NewMessageServiceHandler(f))
	mux.HandleFunc("/v1/consume", f.serve)
	f.input.Handle(mux)
	srv := httptest.NewServer(mux)
	f.addr = srv.Listener.Addr().String()
	t.Cleanup(func() {
		f.input.Cut()
		f.cut()
		srv.Close()
		f.wg.Wait()
	})
	return f
}

func (f *fake) PublishRoute(context.Context, *connect.Request[pb.PublishRouteRequest]) (*connect.Response[pb.RouteResponse], error) {
	return f.ConsumeRoute(context.Background(), nil)
}

func (f *fake) ConsumeRoute(context.Context, *connect.Request[pb.ConsumeRouteRequest]) (*connect.Response[pb.RouteResponse], error) {
	hosts := []*pb.HostAddress{{Id: "h1", Address: f.addr}}
	if f.route != nil {
		var err error
		if hosts, err = f.route(); err != nil {
			return nil, convert.RPCError(err)
		}
	}
	return connect.NewResponse(&pb.RouteResponse{Hosts: hosts}), nil
}

func (f *fake) Pull(_ context.Context, r *connect.Request[pb.PullRequest]) (*connect.Response[pb.PullResponse], error) {
	res, err := f.pull(r.Msg)
	if err != nil {
		return nil, convert.RPCError(err)
	}
	return connect.NewResponse(res), nil
}

func (f *fake) serve(w http.ResponseWriter, r *http.Request) {
	f.wg.Add(1) // before the connection is the websocket's: until then the server waits for it
	defer f.wg.Done()
	conn, err := ws.Upgrade(w, r, ws.Options{})
	if err != nil {
		return
	}
	m := ws.NewMux(conn, func(fr wire.Frame, _ *ws.Message) ws.StreamHandler {
		if fr.Type != wire.TypeConsumeHello {
			return nil
		}
		if f.stream != nil {
			return f.stream(conn, fr.Stream)
		}
		return &fakeStream{f: f, conn: conn, number: fr.Stream}
	})
	m.Run(context.Background())
}

// add makes messages with payloads m0001 …
func (f *fake) add(t testing.TB, n int) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for range n {
		seq := core.Seq(len(f.mu.messages) + 1)
		record, err := wire.AppendRecord(nil, &wire.Record{
			ID: NewMessageID(), Key: []byte("k"), Payload: fmt.Appendf(nil, "m%04d", seq),
		})
		if err != nil {
			t.Fatal(err)
		}
		m := &fakeMessage{seq: seq, attempt: 1, record: record}
		f.mu.messages[seq] = m
		f.mu.ready = append(f.mu.ready, m)
	}
	f.dispatchLocked()
}

// dispatchLocked hands out what is ready, a frame of up to ten messages at a time.
func (f *fake) dispatchLocked() {
	if f.flood {
		for s := range f.mu.streams {
			s.floodLocked()
		}
		return
	}
	for s := range f.mu.streams {
		for !s.deposed && len(f.mu.ready) > 0 && s.credit.Messages > 0 && s.credit.Bytes > 0 {
			n := min(10, len(f.mu.ready), int(s.credit.Messages))
			if f.greedy {
				n = len(f.mu.ready)
			}
			s.deliverLocked(n)
		}
	}
}

// cut ends every consumer's connection.
func (f *fake) cut() {
	f.mu.Lock()
	var conns []*ws.Conn
	for s := range f.mu.streams {
		conns = append(conns, s.conn)
	}
	f.mu.Unlock()
	for _, c := range conns {
		c.Abort(net.ErrClosed)
	}
}

// steal makes the host forget who holds a message, as a lock timeout does.
func (f *fake) steal(seq core.Seq) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.messages[seq].holder = nil
}

func (f *fake) state(read func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	read()
}

func (f *fake) ackedCount() (n int) {
	f.state(func() { n = len(f.mu.acked) })
	return n
}

func dial(t testing.TB, f *fake) *Client {
	t.Helper()
	c, err := Dial(limited(t), f.addr, WithName("test"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func (f *fake) Ack(_ context.Context, r *connect.Request[pb.AckRequest]) (*connect.Response[pb.SettleResponse], error) {
	return connect.NewResponse(f.settle(r.Msg.Tokens)), nil
}

func (f *fake) Extend(_ context.Context, r *connect.Request[pb.ExtendRequest]) (*connect.Response[pb.SettleResponse], error) {
	return connect.NewResponse(f.settle(r.Msg.Tokens)), nil
}

func (f *fake) Nack(_ context.Context, r *connect.Request[pb.NackRequest]) (*connect.Response[pb.SettleResponse], error) {
	f.state(func() {
		if r.Msg.Unseen {
			f.mu.unseen += len(r.Msg.Tokens)
		}
		f.mu.reasons = append(f.mu.reasons, r.Msg.Reason)
	})
	return connect.NewResponse(f.settle(r.Msg.Tokens)), nil
}

func (f *fake) Reject(_ context.Context, r *connect.Request[pb.RejectRequest]) (*connect.Response[pb.SettleResponse], error) {
	f.state(func() { f.mu.reasons = append(f.mu.reasons, r.Msg.Reason) })
	return connect.NewResponse(f.settle(r.Msg.Tokens)), nil
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %s", what)
		}
		<-tick.C
	}
}
