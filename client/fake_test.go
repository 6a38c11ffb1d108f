package client

import (
	"bytes"
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
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

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
	flood bool // deliver copies of one message without end, settled by anything
	pull  func(*pb.PullRequest) (*pb.PullResponse, error)

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
		extended int
		nacks    []wire.Nack
		rejected []string
		results  int
	}
}

type fakeMessage struct {
	seq     core.Seq
	attempt uint16
	record  []byte
	holder  *fakeStream
}

type fakeStream struct {
	f       *fake
	conn    *ws.Conn
	number  uint32
	tokens  bool
	credit  wire.Credit
	started bool
	deposed bool
	flood   []byte
	seq     core.Seq
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
	conn, err := ws.Upgrade(w, r, ws.Options{})
	if err != nil {
		return
	}
	m := ws.NewMux(conn, func(fr wire.Frame, _ *ws.Message) ws.StreamHandler {
		if fr.Type != wire.TypeConsumeHello {
			return nil
		}
		return &fakeStream{f: f, conn: conn, number: fr.Stream}
	})
	f.wg.Add(1)
	defer f.wg.Done()
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
			s.deliverLocked(min(10, len(f.mu.ready), int(s.credit.Messages)))
		}
	}
}

func (s *fakeStream) floodLocked() {
	const most = 200
	for s.credit.Messages > 0 {
		if s.flood == nil {
			s.started = true
			h := wire.Handle{Handle: 3, Extent: s.f.extent}
			s.conn.TrySend(wire.AppendFrame(nil, wire.TypeHandle, s.number, h.Append(nil)))
			record, err := wire.AppendRecord(nil, &wire.Record{ID: NewMessageID(), Payload: make([]byte, 100)})
			if err != nil {
				panic(err)
			}
			s.flood = bytes.Repeat(record, most)
		}
		n := min(most, s.credit.Messages)
		d := wire.Deliver{
			Handle: 3, Records: s.flood[:int(n)*len(s.flood)/most],
			Runs: []wire.DeliverRun{{Base: s.seq + 1, Count: n, Attempt: 1}},
		}
		s.seq += core.Seq(n)
		s.credit.Messages -= n
		s.conn.TrySend(wire.AppendFrame(nil, wire.TypeDeliver, s.number, d.Append(nil)))
	}
}

func (s *fakeStream) deliverLocked(n int) {
	d := wire.Deliver{Handle: 3}
	for _, m := range s.f.mu.ready[:n] {
		m.holder = s
		d.Runs = append(d.Runs, wire.DeliverRun{Base: m.seq, Count: 1, Attempt: m.attempt, Enqueued: 1_700_000_000_000_000})
		d.Records = append(d.Records, m.record...)
		if s.tokens {
			d.Tokens = wire.AppendToken(d.Tokens, fmt.Appendf(nil, "token-%d", m.seq))
		}
		s.credit.Messages--
		s.credit.Bytes -= min(s.credit.Bytes, uint64(len(m.record)))
	}
	s.f.mu.ready = s.f.mu.ready[n:]
	var frames []byte
	if !s.started {
		s.started = true
		h := wire.Handle{Handle: 3, Extent: s.f.extent}
		frames = wire.AppendFrame(frames, wire.TypeHandle, s.number, h.Append(nil))
	}
	var flags uint16
	if s.tokens {
		flags = wire.FlagTokens
	}
	frames, at := wire.BeginFrame(frames, wire.TypeDeliver, flags, s.number)
	frames = d.Append(frames)
	wire.EndFrame(frames, at)
	s.conn.TrySend(frames)
}

func (s *fakeStream) send(t wire.FrameType, m proto.Message) {
	body, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	s.conn.TrySend(wire.AppendFrame(nil, t, s.number, body))
}

func (s *fakeStream) Closed(error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	delete(s.f.mu.streams, s)
	for seq := core.Seq(1); int(seq) <= len(s.f.mu.messages); seq++ {
		if m := s.f.mu.messages[seq]; m.holder == s && s.f.mu.acked[seq] == 0 {
			m.holder = nil
			m.attempt++
			s.f.mu.ready = append(s.f.mu.ready, m)
		}
	}
	s.f.dispatchLocked()
}

func (s *fakeStream) HandleFrame(fr wire.Frame, _ *ws.Message) {
	f := s.f
	if fr.Type == wire.TypeConsumeHello {
		s.greet(fr.Body)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var err error
	switch fr.Type {
	case wire.TypeConsumeCredit:
		var c wire.Credit
		err = c.Decode(fr.Body)
		if fr.Flags == wire.FlagRecall {
			back := wire.Credit{Messages: s.credit.Messages}
			s.credit.Messages = 0
			b, at := wire.BeginFrame(nil, wire.TypeConsumeCredit, wire.FlagRecall, s.number)
			b = back.Append(b)
			wire.EndFrame(b, at)
			s.conn.TrySend(b)
			break
		}
		s.credit.Messages += c.Messages
		s.credit.Bytes += c.Bytes
	case wire.TypeAck, wire.TypeReturn:
		var v wire.Settled
		err = v.Decode(fr.Body)
		for _, r := range v.Runs {
			for seq := r.Base; seq < r.Base+core.Seq(r.Count); seq++ {
				s.settledLocked(fr.Type, v.Handle, seq, r.Attempt)
			}
		}
	case wire.TypeNack, wire.TypeReject:
		var n wire.Nack
		err = n.Decode(fr.Body)
		n.Reason = append([]byte(nil), n.Reason...)
		m := f.mu.messages[n.Seq]
		m.holder = nil
		if fr.Type == wire.TypeReject {
			f.mu.rejected = append(f.mu.rejected, string(n.Reason))
			break
		}
		f.mu.nacks = append(f.mu.nacks, n)
		m.attempt++
		f.mu.ready = append(f.mu.ready, m)
	case wire.TypeExtend:
		var e wire.Extend
		err = e.Decode(fr.Body)
		f.mu.extended++
	case wire.TypeConsumeClose:
		delete(f.mu.streams, s)
		s.conn.TrySend(wire.AppendFrame(nil, wire.TypeConsumeClose, s.number, nil))
	}
	if err != nil {
		panic(err)
	}
	f.dispatchLocked()
}

func (s *fakeStream) greet(body []byte) {
	var hello pb.ConsumeHello
	if err := proto.Unmarshal(body, &hello); err != nil {
		panic(err)
	}
	if s.f.hello != nil {
		if err := s.f.hello(&hello); err != nil {
			s.send(wire.TypeError, convert.ErrorToProto(err))
			return
		}
	}
	s.tokens = hello.Tokens
	s.f.mu.Lock()
	s.f.mu.streams[s] = true
	s.f.mu.Unlock()
	s.send(wire.TypeConsumeHelloOK, &pb.ConsumeHelloOK{LockTimeout: durationpb.New(s.f.lock)})
}

func (s *fakeStream) settledLocked(t wire.FrameType, handle uint32, seq core.Seq, attempt uint16) {
	if s.f.flood {
		return
	}
	m := s.f.mu.messages[seq]
	if m.holder != s || m.attempt != attempt {
		s.f.mu.results++
		r := wire.AckResult{Entries: []wire.AckFailure{{Handle: handle, Seq: seq, Attempt: attempt, Code: core.CodeStale}}}
		s.conn.TrySend(wire.AppendFrame(nil, wire.TypeAckResult, s.number, r.Append(nil)))
		return
	}
	if t == wire.TypeAck {
		s.f.mu.acked[seq]++
		return
	}
	m.holder = nil
	s.f.mu.returned++
	s.f.mu.ready = append(s.f.mu.ready, m)
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
