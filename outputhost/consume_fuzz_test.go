package outputhost

import (
	"encoding/binary"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// FuzzConsumeSession feeds a consumer that has messages sequences of frames, before and after it joined: it never
// panics, and its credit stays within the host's bound.
func FuzzConsumeSession(f *testing.F) {
	frame := func(t wire.FrameType, body []byte) []byte {
		return append([]byte{byte(t), byte(len(body)), byte(len(body) >> 8)}, body...)
	}
	hello, err := proto.Marshal(&pb.ConsumeHello{Queue: "/t/q", Group: "g", Client: "fuzz"})
	if err != nil {
		f.Fatal(err)
	}
	credit := frame(wire.TypeConsumeCredit, (&wire.Credit{Messages: 10, Bytes: 1 << 63}).Append(nil))
	acks := wire.Settled{Handle: 0, Runs: []wire.SeqRun{{Base: 1, Count: 2, Attempt: 1}}}
	f.Add(true, append(credit, frame(wire.TypeAck, acks.Append(nil))...))
	f.Add(true, append(credit, frame(wire.TypeReturn, acks.Append(nil))...))
	f.Add(true, append(credit, frame(wire.TypeNack, (&wire.Nack{Seq: 1, Attempt: 1, DelayMillis: -1}).Append(nil))...))
	f.Add(true, append(credit, frame(wire.TypeExtend, (&wire.Extend{Seq: 1, Attempt: 1, Millis: 1 << 30}).Append(nil))...))
	f.Add(true, append(frame(wire.TypeConsumeClose, nil), frame(wire.TypeConsumeClose, nil)...))
	f.Add(false, append(frame(wire.TypeConsumeHello, hello), frame(wire.TypeConsumeHello, hello)...))
	f.Fuzz(func(t *testing.T, joined bool, frames []byte) {
		b := newHarness(t)
		c := b.connect()
		o := &consumer{s: c.s, h: b.Host}
		if joined {
			o = c.consume(b.large(1, 2))
			o.greeted = true
		}
		for len(frames) >= 3 {
			n := min(int(binary.LittleEndian.Uint16(frames[1:])), len(frames)-3)
			body := frames[3 : 3+n]
			o.HandleFrame(wire.Frame{Type: wire.FrameType(frames[0]), Body: body}, &ws.Message{Bytes: body})
			frames = frames[3+n:]
		}
		if g := o.group.Load(); g != nil {
			g.mu.Lock()
			if o.credit.bytes > b.cfg.MaxCredit || o.credit.messages > 1<<20 || o.held < 0 {
				t.Errorf("credit %+v and %d messages held are out of bounds", o.credit, o.held)
			}
			g.mu.Unlock()
		}
		o.Closed(core.Errorf(core.CodeUnavailable, "the connection ended"))
	})
}
