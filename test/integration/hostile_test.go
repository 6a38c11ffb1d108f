package integration

import (
	"bytes"
	"math"
	"strconv"
	"testing"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/test/process"
	"github.com/columbamq/columba/wire"
)

// TestHostileConsumer has a consumer that holds two messages send a frame that it must not, each in a group of its own
// where another consumer works. The host refuses the frame, with the stream or alone, and the other consumer gets all
// that comes.
func TestHostileConsumer(t *testing.T) {
	w := newWorld(t)
	settled := func(runs ...wire.SeqRun) []byte { return (&wire.Settled{Runs: runs}).Append(nil) }
	one := wire.SeqRun{Base: 1, Count: 1, Attempt: 1}
	many := make([]wire.SeqRun, wire.MaxSettledRuns+1)
	for i := range many {
		many[i] = one
	}
	nack := func(n wire.Nack) []byte { return n.Append(nil) }
	long := nack(wire.Nack{Seq: 1, Attempt: 1, Reason: bytes.Repeat([]byte("x"), wire.MaxReason)})
	long = append(long, 'x')
	long[6], long[7] = byte(len(long)-28), byte((len(long)-28)>>8)
	cases := map[string]struct {
		kind wire.FrameType
		body []byte
		code core.Code // of the error, or of the settlement that is refused
	}{
		"ack of an unknown handle":      {wire.TypeAck, (&wire.Settled{Handle: 99, Runs: []wire.SeqRun{one}}).Append(nil), core.CodeStale},
		"ack of the highest handle":     {wire.TypeAck, (&wire.Settled{Handle: math.MaxUint32, Runs: []wire.SeqRun{one}}).Append(nil), core.CodeStale},
		"ack of the highest seq":        {wire.TypeAck, settled(wire.SeqRun{Base: math.MaxUint64, Count: 1, Attempt: 1}), core.CodeBadFrame},
		"ack of the second highest seq": {wire.TypeAck, settled(wire.SeqRun{Base: math.MaxUint64 - 1, Count: 1, Attempt: 1}), core.CodeStale},
		"ack past the highest seq":      {wire.TypeAck, settled(wire.SeqRun{Base: math.MaxUint64, Count: 2, Attempt: 1}), core.CodeBadFrame},
		"ack of seq 0":                  {wire.TypeAck, settled(wire.SeqRun{Count: 1, Attempt: 1}), core.CodeBadFrame},
		"ack of no seq":                 {wire.TypeAck, settled(wire.SeqRun{Base: 1, Attempt: 1}), core.CodeBadFrame},
		"ack of attempt 0":              {wire.TypeAck, settled(wire.SeqRun{Base: 1, Count: 1}), core.CodeStale},
		"ack of a later attempt":        {wire.TypeAck, settled(wire.SeqRun{Base: 1, Count: 1, Attempt: math.MaxUint16}), core.CodeStale},
		"ack of 2^32 - 1 seqs":          {wire.TypeAck, settled(wire.SeqRun{Base: 1, Count: math.MaxUint32, Attempt: 1}), core.CodeTooLarge},
		"acks of what nobody got":       {wire.TypeAck, settled(wire.SeqRun{Base: 1000, Count: 2000, Attempt: 1}), core.CodeBadFrame},
		"ack of one twice":              {wire.TypeAck, settled(one, one), core.CodeStale},
		"ack of too many runs":          {wire.TypeAck, settled(many...), core.CodeTooLarge},
		"ack of 2^32 - 1 runs":          {wire.TypeAck, []byte{0, 0, 0, 0, 255, 255, 255, 255}, core.CodeBadFrame},
		"ack of what another holds":     {wire.TypeAck, settled(wire.SeqRun{Base: 3, Count: 1, Attempt: 2}), core.CodeStale},
		"return of 2^32 - 1 seqs":       {wire.TypeReturn, settled(wire.SeqRun{Base: 1, Count: math.MaxUint32, Attempt: 1}), core.CodeTooLarge},
		"return of one twice":           {wire.TypeReturn, settled(one, one), core.CodeStale},
		"return of attempt 0":           {wire.TypeReturn, settled(wire.SeqRun{Base: 1, Count: 1}), core.CodeStale},
		"nack of the highest seq":       {wire.TypeNack, nack(wire.Nack{Seq: math.MaxUint64, Attempt: 1}), core.CodeStale},
		"nack of seq 0":                 {wire.TypeNack, nack(wire.Nack{Attempt: 1}), core.CodeBadFrame},
		"nack for ever":                 {wire.TypeNack, nack(wire.Nack{Seq: 1, Attempt: 1, DelayMillis: math.MaxInt64}), core.CodeBadArgument},
		"nack with a long reason":       {wire.TypeNack, long, core.CodeTooLarge},
		"nack with too much metadata":   {wire.TypeNack, nack(wire.Nack{Seq: 1, Attempt: 1, Metadata: make([]byte, core.MaxMetadata+1)}), core.CodeTooLarge},
		"nack with most metadata":       {wire.TypeNack, nack(wire.Nack{Seq: 1, Attempt: 1, Metadata: make([]byte, wire.MaxAttributes+1)}), core.CodeTooLarge},
		"nack with 2^32 - 1 bytes":      {wire.TypeNack, append(make([]byte, 24), 255, 255, 255, 255), core.CodeBadFrame},
		"reject of a later attempt":     {wire.TypeReject, nack(wire.Nack{Seq: 1, Attempt: 2}), core.CodeStale},
		"extend into the past":          {wire.TypeExtend, (&wire.Extend{Seq: 1, Attempt: 1, Millis: -1}).Append(nil), core.CodeBadArgument},
		"extend for ever":               {wire.TypeExtend, (&wire.Extend{Seq: 1, Attempt: 1, Millis: math.MaxInt64}).Append(nil), core.CodeBadArgument},
		"extend of the highest seq":     {wire.TypeExtend, (&wire.Extend{Seq: math.MaxUint64, Attempt: 1, Millis: 1}).Append(nil), core.CodeBadFrame},
		"credit of a byte":              {wire.TypeConsumeCredit, []byte{1}, core.CodeBadFrame},
		"confirmation of no position":   {wire.TypeConfirm, []byte{1, 2}, core.CodeBadFrame},
		"a second hello":                {wire.TypeConsumeHello, marshal(t, &pb.ConsumeHello{Queue: queue, Group: "other"}), core.CodeBadFrame},
		"a frame of a host":             {wire.TypeDeliver, make([]byte, 100), core.CodeBadFrame},
		"a frame of a publisher":        {wire.TypePublish, make([]byte, 100), core.CodeBadFrame},
		"a frame of an unknown type":    {200, nil, core.CodeBadFrame},
		"credit of 2^32 - 1 and 2^64-1": {wire.TypeConsumeCredit, (&wire.Credit{Messages: math.MaxUint32, Bytes: math.MaxUint64}).Append(nil), ""},
		"nack in text that is none":     {wire.TypeNack, nack(wire.Nack{Seq: 1, Attempt: 1, DelayMillis: math.MinInt64, Reason: []byte("\xff\xfe")}), ""},
		"extend to now":                 {wire.TypeExtend, (&wire.Extend{Seq: 1, Attempt: 1}).Append(nil), ""},
	}
	groups := make(map[string]string)
	for name := range cases {
		group := "g" + strconv.Itoa(len(groups))
		groups[name] = group
		w.group(group, nil)
	}
	w.publish("a", "b")
	for name, x := range cases {
		l := w.raw("/v1/consume")
		hello := wire.AppendFrame(nil, wire.TypeConsumeHello, 1, marshal(t, &pb.ConsumeHello{Queue: queue, Group: groups[name], Resume: true}))
		send := func(frame []byte) {
			t.Helper()
			if err := l.conn.Send(t.Context(), frame); err != nil {
				t.Fatal(err)
			}
		}
		send(hello)
		l.until(t, name, wire.TypeConsumeHelloOK)
		send(wire.AppendFrame(nil, wire.TypeConsumeCredit, 1, (&wire.Credit{Messages: 2, Bytes: 1 << 20}).Append(nil)))
		l.until(t, name, wire.TypeDeliver)
		send(wire.AppendFrame(nil, x.kind, 1, x.body))
		if x.code != "" {
			if code := w.refusedHere(l, name); code != x.code {
				t.Errorf("%s: refused as %q, want %q", name, code, x.code)
			}
		} else {
			send(wire.AppendFrame(nil, wire.TypeConfirm, 1, wire.AppendPosition(nil, math.MaxUint64)))
			l.until(t, name, wire.TypeConfirm)
		}
		l.close()
	}
	w.publish("c")
	for name, group := range groups {
		con := w.consumer(group)
		for d := w.take(con, process.Patience); ; d = w.take(con, process.Patience) {
			if d == nil {
				t.Fatalf("%s: another consumer gets nothing", name)
			}
			w.settle(d.Ack())
			if string(d.Body) == "c" {
				break
			}
		}
		closeConsumer(con)
	}
	w.works()
}

// until waits for a frame of a type.
func (l *link) until(t *testing.T, what string, kind wire.FrameType) {
	t.Helper()
	limit := time.After(20 * time.Second)
	for {
		select {
		case f, ok := <-l.frames:
			if !ok || f.Type == wire.TypeError {
				t.Fatalf("%s: got %v instead of a frame %d", what, f, kind)
			}
			if f.Type == kind {
				return
			}
		case <-limit:
			t.Fatalf("%s: no frame %d", what, kind)
		}
	}
}

// refusedHere waits until a settlement is refused, alone or with its stream.
func (w *world) refusedHere(l *link, what string) core.Code {
	w.t.Helper()
	return w.answer(l, what, func(f wire.Frame) (core.Code, bool) {
		var list wire.AckResult
		if f.Type == wire.TypeAckResult && list.Decode(f.Body) == nil {
			return list.Entries[0].Code, true
		}
		return "", false
	})
}
