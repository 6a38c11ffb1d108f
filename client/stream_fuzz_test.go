package client

import (
	"context"
	"encoding/binary"
	"math"
	"net"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// quietStream is an output host that greets, confirms the end of a stream, and is silent otherwise.
type quietStream struct {
	conn   *ws.Conn
	number uint32
}

func (s *quietStream) Closed(error) {}

func (s *quietStream) HandleFrame(f wire.Frame, _ *ws.Message) {
	switch f.Type {
	case wire.TypeConsumeHello:
		s.conn.Post(wire.AppendFrame(nil, wire.TypeConsumeHelloOK, s.number, nil))
	case wire.TypeConsumeClose:
		s.conn.Post(wire.AppendFrame(nil, wire.TypeConsumeClose, s.number, nil))
	}
}

// FuzzConsumeStream gives a consumer sequences of frames of its host: it never holds more than it asked for, its
// application settles what arrives, and it closes within its time.
func FuzzConsumeStream(f *testing.F) {
	const prefetch = 8
	host := startFake(f, &fake{
		settle: func([]string) *pb.SettleResponse { return &pb.SettleResponse{} },
		stream: func(conn *ws.Conn, number uint32) ws.StreamHandler { return &quietStream{conn, number} },
	})
	c, err := Dial(f.Context(), host.addr, WithNetDial(func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr != host.addr { // frames name hosts
			return nil, core.Errorf(core.CodeUnavailable, "nobody listens at %q", addr)
		}
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { c.Close() })
	for _, frames := range consumeSeeds(f) {
		f.Add(frames)
	}
	f.Fuzz(func(t *testing.T, frames []byte) {
		con := consume(t, c, Prefetch(prefetch), WithTokens())
		streams := con.streams()
		if len(streams) != 1 {
			t.Fatalf("%d streams", len(streams))
		}
		s := streams[0]
		for len(frames) >= 4 && !s.lost.Load() {
			n := min(int(binary.LittleEndian.Uint16(frames[2:])), len(frames)-4)
			s.HandleFrame(wire.Frame{Type: wire.FrameType(frames[0]), Flags: uint16(frames[1]), Body: frames[4 : 4+n]}, nil)
			frames = frames[4+n:]
		}
		con.inbox.mu.Lock()
		held := 0
		for _, x := range append(con.inbox.mu.slabs[:len(con.inbox.mu.slabs):len(con.inbox.mu.slabs)], con.inbox.mu.apart...) {
			held += len(x.deliveries)
		}
		con.inbox.mu.Unlock()
		if held > prefetch {
			t.Errorf("the inbox holds %d messages", held)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		for d, err := range con.Deliveries(ctx) {
			if err == nil {
				_, _ = d.Ack(), d.Key() // a settlement may be refused
			}
		}
		closing, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer stop()
		_ = con.Close(closing) // the host may have promised to confirm, and never does
	})
}

// consumeSeeds are sequences of frames: type, flags, length u16, body.
func consumeSeeds(f *testing.F) (seeds [][]byte) {
	frame := func(t wire.FrameType, flags byte, body []byte) []byte {
		return append([]byte{byte(t), flags, byte(len(body)), byte(len(body) >> 8)}, body...)
	}
	marshal := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	record, err := wire.AppendRecord(nil, &wire.Record{ID: NewMessageID(), Payload: []byte("x"), Key: []byte("k")})
	if err != nil {
		f.Fatal(err)
	}
	name := wire.Handle{Handle: 1, Extent: core.ExtentID{ID: core.NewID(time.Now())}, Token: []byte("token")}
	handle := frame(wire.TypeHandle, 1, name.Append(nil))
	deliver := func(count uint32, records int, tokens bool) []byte {
		d := wire.Deliver{Handle: 1, Runs: []wire.DeliverRun{{Base: 1, Count: count, Attempt: 1, Enqueued: math.MinInt64}}}
		for range records {
			d.Records = append(d.Records, record...)
			if tokens {
				d.Tokens = wire.AppendToken(d.Tokens, []byte("token"))
			}
		}
		return frame(wire.TypeDeliver, 1, d.Append(nil))
	}
	results := wire.AckResult{Entries: []wire.AckFailure{{Handle: 1, Seq: 1, Attempt: 1, Code: core.CodeMoved}, {Handle: 7, Seq: 1, Attempt: 1, Code: core.CodeStale}}}
	route := &pb.Reconfigure{Version: math.MaxUint64, Hosts: []*pb.HostAddress{{Id: "h1", Address: "x"}, {Id: "h1"}, {}}}
	for _, then := range [][]byte{
		deliver(1, 1, true), deliver(1, 1, false), deliver(9, 9, false), deliver(2, 1, false), deliver(1, 2, false), deliver(math.MaxUint32, 1, false),
		frame(wire.TypeAckResult, 0, results.Append(nil)), frame(wire.TypeConfirm, 0, wire.AppendPosition(nil, math.MaxUint64)),
		frame(wire.TypeConsumeCredit, 1, (&wire.Credit{Messages: math.MaxUint32, Bytes: math.MaxUint64}).Append(nil)),
		frame(wire.TypeConsumeHelloOK, 0, marshal(&pb.ConsumeHelloOK{Confirms: true, LockTimeout: durationpb.New(1), Run: make([]byte, 16), GroupId: "other"})),
		frame(wire.TypeConsumeHelloOK, 0, marshal(&pb.ConsumeHelloOK{Confirms: true, LockTimeout: durationpb.New(math.MaxInt64)})),
		frame(wire.TypeReconfigure, 0, marshal(route)), frame(wire.TypeConsumeClose, 0, nil), frame(wire.TypeDrain, 0, nil), frame(wire.TypeError, 0, nil),
		frame(wire.TypeThrottled, 0, marshal(&pb.Throttled{Reason: &pb.Error{Code: "disabled", Text: "x"}})), frame(wire.TypePublishAck, 0, nil),
	} {
		seeds = append(seeds, then, append(append([]byte(nil), handle...), then...), append(append(append([]byte(nil), handle...), deliver(2, 2, true)...), then...))
	}
	return seeds
}
