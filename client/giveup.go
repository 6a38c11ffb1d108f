package client

import "github.com/columbamq/columba/wire"

// giveUp makes a stream lost whose host does not answer, while its connection lives. It tells the host to end the
// stream. Until the host says that it has, deliveries may arrive that were on their way. They are given back by calls:
// the credit that they used may be lent to another host.
//
//	given up ── Handle, Deliver ──▶ given back
//	    └────── ConsumeClose, Error, or the end of the connection ──▶ forgotten
func (s *consumeStream) giveUp(err error) {
	s.end(err)
	s.postClose()
}

// countsAfterEnd reports whether a frame that arrives after the end of the stream is to be handled. It forgets the
// stream when the host has ended it.
func (s *consumeStream) countsAfterEnd(t wire.FrameType) bool {
	switch t {
	case wire.TypeHandle, wire.TypeDeliver:
		return true
	case wire.TypeConsumeClose, wire.TypeError:
		s.mux.Forget(s.number)
		s.postClose() // the second one ends the stream of the host
	}
	return false
}

func (s *consumeStream) postClose() {
	s.mux.Conn.Post(wire.AppendFrame(nil, wire.TypeConsumeClose, s.number, nil))
}
