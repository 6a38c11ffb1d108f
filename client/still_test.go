package client

import (
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// stillHost is an output host with one message. It answers the first hello, and then handles nothing until it wakes.
type stillHost struct {
	f     *fake
	asked chan struct{} // one of the first stream: it asks for messages
	ended chan struct{} // one of the first stream: the client has ended it
	mu    struct {
		sync.Mutex
		streams []*stillStream
		awake   bool
	}
}

type stillStream struct {
	h      *stillHost
	conn   *ws.Conn
	number uint32
	frames []wire.Frame // not handled
	credit uint32
	named  bool
}

func startStill(t *testing.T) *stillHost {
	h := &stillHost{f: &fake{}, asked: make(chan struct{}, 1), ended: make(chan struct{}, 1)}
	h.f.stream = func(conn *ws.Conn, number uint32) ws.StreamHandler {
		h.mu.Lock()
		defer h.mu.Unlock()
		s := &stillStream{h: h, conn: conn, number: number}
		h.mu.streams = append(h.mu.streams, s)
		return s
	}
	startFake(t, h.f)
	return h
}

// wake has the host deliver what its first stream asks for, and then handle what has come meanwhile.
func (h *stillHost) wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.awake = true
	for _, s := range h.mu.streams {
		frames := s.frames
		s.frames = nil
		for _, f := range frames {
			s.handleLocked(f)
		}
	}
}

func (*stillStream) Closed(error) {}

func (s *stillStream) HandleFrame(f wire.Frame, _ *ws.Message) {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	first := s == s.h.mu.streams[0]
	if first && f.Type == wire.TypeConsumeCredit {
		var c wire.Credit
		if must(c.Decode(f.Body)); c.Messages > 0 {
			signal(s.h.asked)
		}
	}
	if first && f.Type == wire.TypeConsumeClose {
		signal(s.h.ended)
	}
	if s.h.mu.awake || first && f.Type == wire.TypeConsumeHello {
		s.handleLocked(f)
		return
	}
	f.Body = append([]byte(nil), f.Body...)
	s.frames = append(s.frames, f)
}

func (s *stillStream) handleLocked(f wire.Frame) {
	switch f.Type {
	case wire.TypeConsumeHello:
		s.greet()
	case wire.TypeConsumeCredit:
		var c wire.Credit
		must(c.Decode(f.Body))
		if f.Flags != wire.FlagRecall {
			s.credit += c.Messages
			s.deliver()
			return
		}
		b, at := wire.BeginFrame(nil, wire.TypeConsumeCredit, wire.FlagRecall, s.number)
		b = (&wire.Credit{Messages: s.credit}).Append(b)
		wire.EndFrame(b, at)
		s.credit = 0
		s.conn.Post(b)
	case wire.TypeConfirm, wire.TypeConsumeClose:
		s.conn.Post(wire.AppendFrame(nil, f.Type, s.number, f.Body))
	}
}

func (s *stillStream) greet() {
	body, err := proto.Marshal(&pb.ConsumeHelloOK{LockTimeout: durationpb.New(time.Minute), Confirms: true, Run: make([]byte, 16)})
	must(err)
	s.conn.Post(wire.AppendFrame(nil, wire.TypeConsumeHelloOK, s.number, body))
}

// deliver sends the message once on each stream: it is given back by a call, or yielded.
func (s *stillStream) deliver() {
	if s.named || s.credit == 0 {
		return
	}
	s.named = true
	s.credit--
	name := wire.Handle{Handle: 3, Extent: s.h.f.extent, Token: []byte("extent")}
	frames, at := wire.BeginFrame(nil, wire.TypeHandle, wire.FlagTokens, s.number)
	frames = name.Append(frames)
	wire.EndFrame(frames, at)
	record, err := wire.AppendRecord(nil, &wire.Record{ID: NewMessageID(), Payload: []byte("late")})
	must(err)
	d := wire.Deliver{Handle: 3, Runs: []wire.DeliverRun{{Base: 1, Count: 1, Attempt: 1}}, Records: record}
	s.conn.Post(wire.AppendFrame(frames, wire.TypeDeliver, s.number, d.Append(nil)))
}

// withStill is a host with two messages, which is the frontend, too, beside one that stands still.
func withStill(t *testing.T) (*fake, *stillHost) {
	b := startStill(t)
	a := &fake{settle: func([]string) *pb.SettleResponse { return &pb.SettleResponse{} }}
	a.route = func() ([]*pb.HostAddress, error) {
		return []*pb.HostAddress{{Id: "a", Address: a.addr}, {Id: "b", Address: b.f.addr}}, nil
	}
	return startFake(t, a), b
}

// TestLimit_HostStandsStill: one of two hosts is asked for messages and stands still. The consumer asks the other host
// for them. Then the host wakes, and delivers on the stream that was given up.
func TestLimit_HostStandsStill(t *testing.T) {
	a, b := withStill(t)
	con := consume(t, dial(t, a), Limit(3))
	<-b.asked
	a.add(t, 2)
	ctx := limited(t)
	var got []string
	for d, err := range con.Deliveries(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, string(d.Body)); len(got) == 2 {
			select {
			case <-b.ended:
				b.wake()
			case <-ctx.Done():
				t.Fatal("the consumer has not given up the stream of a host that stands still")
			}
		}
		if err := d.Ack(); err != nil {
			t.Error(err)
		}
	}
	if len(got) != 3 || got[2] != "late" {
		t.Fatalf("the consumer yielded %q, want two messages of the host that answers and then the late one", got)
	}
	eventually(t, "the first delivery of the late message is given back", func() (back bool) {
		a.state(func() { back = a.mu.unseen == 1 })
		return back
	})
}

// TestLimit_HostIsSlow: a host that answers a recall late, and sends meanwhile, keeps its stream: a large message may
// be on its way.
func TestLimit_HostIsSlow(t *testing.T) {
	a, b := withStill(t)
	consume(t, dial(t, a), Limit(1))
	<-b.asked
	tick := time.NewTicker(recallTimeout / 10)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < recallTimeout+recallTimeout/4; {
		select {
		case <-tick.C:
			b.mu.Lock()
			b.mu.streams[0].greet()
			b.mu.Unlock()
		case <-b.ended:
			t.Fatal("the consumer gave up the stream of a host that sends")
		}
	}
}
