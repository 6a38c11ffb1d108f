package client

import (
	"bytes"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

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

func (s *fakeStream) floodLocked() {
	const most = 200
	for s.credit.Messages > 0 {
		if s.flood == nil {
			s.started = true
			h := wire.Handle{Handle: 3, Extent: s.f.extent}
			s.conn.Post(wire.AppendFrame(nil, wire.TypeHandle, s.number, h.Append(nil)))
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
		s.conn.Post(wire.AppendFrame(nil, wire.TypeDeliver, s.number, d.Append(nil)))
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
	s.conn.Post(frames)
}

func (s *fakeStream) send(t wire.FrameType, m proto.Message) {
	body, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	s.conn.Post(wire.AppendFrame(nil, t, s.number, body))
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
			s.conn.Post(b)
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
		s.conn.Post(wire.AppendFrame(nil, wire.TypeConsumeClose, s.number, nil))
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
	ok := &pb.ConsumeHelloOK{LockTimeout: durationpb.New(s.f.lock)}
	if s.f.once {
		ok.LockTimeout = nil
	}
	s.send(wire.TypeConsumeHelloOK, ok)
}

func (s *fakeStream) settledLocked(t wire.FrameType, handle uint32, seq core.Seq, attempt uint16) {
	if s.f.flood {
		return
	}
	m := s.f.mu.messages[seq]
	if m.holder != s || m.attempt != attempt {
		s.f.mu.results++
		r := wire.AckResult{Entries: []wire.AckFailure{{Handle: handle, Seq: seq, Attempt: attempt, Code: core.CodeStale}}}
		s.conn.Post(wire.AppendFrame(nil, wire.TypeAckResult, s.number, r.Append(nil)))
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
