package inputhost

import (
	"context"
	"encoding/binary"
	"math"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/publish"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// fuzzPatience bounds each wait of FuzzPublishSession.
const fuzzPatience = 20 * time.Second

// unawaited in the byte of a frame's stream: the next frame goes out before the hello is answered.
const unawaited = 0x80

// FuzzPublishSession sends an input host sequences of frames on up to four streams of one connection: another
// publisher's message is acknowledged afterwards, and after the end of the connection no session, no publisher and no
// byte in flight of it is left.
func FuzzPublishSession(f *testing.F) {
	r := &harness{t: f}
	r.start(3, nil)
	f.Cleanup(r.stop)
	r.queue(chainPath)
	place := uint64(0)
	r.ctl.set(func() { r.ctl.mu.chain = func() (uint64, error) { place++; return place, nil } }) // it is called one after another: a queue has one opening
	other := r.publisher("other", path)
	for _, frames := range publishSeeds(f) {
		f.Add(frames)
	}
	f.Fuzz(func(t *testing.T, frames []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), fuzzPatience)
		defer cancel()
		conn, err := ws.Dial(ctx, r.self.Address, "/v1/publish", ws.Options{NetDial: r.dial})
		if err != nil {
			t.Fatal(err)
		}
		ended, answered := make(chan struct{}), make(chan struct{}, 1)
		go func() {
			defer close(ended)
			_ = ws.NewMux(conn, func(f wire.Frame, _ *ws.Message) ws.StreamHandler {
				if f.Type == wire.TypePublishHelloOK || f.Type == wire.TypeError {
					select {
					case answered <- struct{}{}:
					default:
					}
				}
				return nil
			}).Run(context.Background()) // the host may end it, with a reason
		}()
		for sent := 0; len(frames) >= 4 && sent < 64; sent++ {
			n := min(int(binary.LittleEndian.Uint16(frames[2:])), len(frames)-4)
			if conn.Send(ctx, wire.AppendFrame(nil, wire.FrameType(frames[0]), uint32(frames[1]%4)+1, frames[4:4+n])) != nil {
				break // the host ended the connection, as it may
			}
			if wire.FrameType(frames[0]) == wire.TypePublishHello && frames[1] < unawaited {
				select {
				case <-answered:
				case <-ended:
				case <-ctx.Done():
					t.Fatal("a hello has no answer")
				}
			}
			frames = frames[4+n:]
		}
		outcome := make(chan error, 1)
		told := publish.DoneFunc(func(_ core.MessageID, _ core.Receipt, err error) { outcome <- err })
		if err := other.pub.Append(ctx, &wire.Record{Payload: []byte("x")}, 0, told); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-outcome:
			if err != nil {
				t.Errorf("another publisher's message: %v", err)
			}
		case <-ctx.Done():
			t.Fatal("another publisher's message has no outcome")
		}
		conn.Abort(nil)
		<-ended
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for sessions, publishers, bytes := r.left(); sessions != 1 || publishers != 1 || bytes != 0; sessions, publishers, bytes = r.left() {
			select {
			case <-tick.C:
			case <-ctx.Done():
				t.Fatalf("%d sessions and %d publishers are left, and %d bytes in flight; want those of the other publisher", sessions, publishers, bytes)
			}
		}
	})
}

// left is what the host counts of its publishers.
func (r *harness) left() (sessions, publishers int, bytes int64) {
	r.host.mu.Lock()
	sessions = len(r.host.mu.sessions)
	r.host.mu.Unlock()
	for _, q := range r.host.list() {
		q.mu.Lock()
		publishers += len(q.mu.publishers)
		q.mu.Unlock()
	}
	return sessions, publishers, r.host.inFlight.Load()
}

// publishSeeds are sequences of frames: type, stream, length u16, body.
func publishSeeds(f *testing.F) (seeds [][]byte) {
	frame := func(t wire.FrameType, stream byte, body []byte) []byte {
		return append([]byte{byte(t), stream, byte(len(body)), byte(len(body) >> 8)}, body...)
	}
	hello := func(stream byte, m *pb.PublishHello) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		return frame(wire.TypePublishHello, stream, b)
	}
	records := func(first uint64, some ...wire.Record) []byte {
		p := wire.Publish{First: first}
		for i := range some {
			var err error
			if p.Records, err = wire.AppendRecord(p.Records, &some[i]); err != nil {
				f.Fatal(err)
			}
		}
		return frame(wire.TypePublish, 0, p.Append(nil))
	}
	one := wire.Record{ID: core.MessageID{ID: core.NewID(time.Now())}, Payload: []byte("one")}
	later := wire.Record{ID: core.MessageID{ID: core.NewID(time.Now())}, DeliverAt: time.Now().Add(time.Hour).UnixMilli(), Payload: []byte("later")}
	never := wire.Record{ID: core.MessageID{ID: core.NewID(time.Now())}, DeliverAt: time.Now().Add(9000 * time.Hour).UnixMilli(), Payload: []byte("never")}
	plain := hello(0, &pb.PublishHello{Queue: path})
	ordered := hello(0, &pb.PublishHello{Queue: chainPath, Producer: []byte("0123456789abcdef"), Session: 1})
	for _, greeting := range [][]byte{plain, ordered, nil} {
		for _, then := range [][]byte{
			records(1, one), records(1, one, later, never), records(math.MaxUint64-wire.MaxBatchRecords, one), append(records(1, one), records(1, one)...),
			frame(wire.TypePublish, 0, make([]byte, 200)), append(frame(wire.TypePublishClose, 0, nil), records(1, one)...),
			hello(0, &pb.PublishHello{Queue: path}), hello(unawaited|1, &pb.PublishHello{Queue: chainPath, Producer: []byte("0123456789abcdef"), Session: math.MaxUint64}),
			hello(2, &pb.PublishHello{Queue: "/t/missing", Internal: true, Owner: make([]byte, 16)}), frame(wire.TypeAppend, 0, nil), frame(wire.TypeDrain, 3, nil),
		} {
			seeds = append(seeds, append(append([]byte(nil), greeting...), then...))
		}
	}
	return seeds
}
