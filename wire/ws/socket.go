package ws

import (
	"encoding/binary"
	"net"
	"os"
	"time"

	"github.com/gorilla/websocket"
)

// socket is the network connection of a server's Conn. It writes messages past the library, each as one frame with one
// call: the library would write every large segment as a fragment of its own, and an empty fragment after them. The
// library itself writes control frames, each with one Write. Safe for concurrent use, but for SetWriteDeadline.
type socket struct {
	net.Conn
	until time.Time     // for the library's next write; the library's lock guards it
	turn  chan struct{} // capacity 1; the goroutine whose element is in it writes, and owns the fields below
	over  error         // of a failed write, or ErrCloseSent: nothing may follow
	head  [maxHead]byte
	all   [][]byte    // head and segments of a message, while it is written
	left  net.Buffers // the part of all that was not written
}

// maxHead is the size of the longest head of a frame without a mask.
const maxHead = 10

// gathered is the size up to which a message is copied into one buffer: that costs less than a vector of its segments.
const gathered = 4 << 10

func newSocket(c net.Conn) *socket { return &socket{Conn: c, turn: make(chan struct{}, 1)} }

// SetWriteDeadline is for the next Write only. A write that is under way keeps its own.
func (s *socket) SetWriteDeadline(t time.Time) error {
	s.until = t
	return nil
}

// Write writes the answer to the handshake, or a control frame, after the message that is being written.
func (s *socket) Write(b []byte) (int, error) {
	if err := s.take(s.until); err != nil {
		return 0, err
	}
	defer s.give()
	if err := s.Conn.SetWriteDeadline(s.until); err != nil {
		return 0, err
	}
	n, err := s.Conn.Write(b)
	if s.over = err; err == nil && b[0] == 0x80|websocket.CloseMessage {
		s.over = websocket.ErrCloseSent
	}
	return n, err
}

// writeMessage writes segments as one binary message. The segments are the caller's again afterwards.
func (s *socket) writeMessage(segments []segment, until time.Time) error {
	if err := s.take(until); err != nil {
		return err
	}
	defer s.give()
	if err := s.Conn.SetWriteDeadline(until); err != nil {
		return err
	}
	size := 0
	for i := range segments {
		size += len(segments[i].b)
	}
	head := appendHead(s.head[:0], size)
	if len(head)+size <= gathered {
		m := newMessage(len(head) + size)
		m.Bytes = append(m.Bytes, head...)
		for i := range segments {
			m.Bytes = append(m.Bytes, segments[i].b...)
		}
		_, s.over = s.Conn.Write(m.Bytes)
		m.Release()
		return s.over
	}
	s.all = append(s.all[:0], head)
	for i := range segments {
		s.all = append(s.all, segments[i].b)
	}
	s.left = s.all
	_, s.over = s.left.WriteTo(s.Conn)
	clear(s.all)
	if s.left = nil; cap(s.all) > maxIdleSegments {
		s.all = nil
	}
	return s.over
}

// take waits for the turn to write, at most until then; the zero time is for ever.
func (s *socket) take(until time.Time) error {
	select {
	case s.turn <- struct{}{}:
	default:
		var late <-chan time.Time
		if !until.IsZero() {
			timer := time.NewTimer(time.Until(until))
			defer timer.Stop()
			late = timer.C
		}
		select {
		case s.turn <- struct{}{}:
		case <-late:
			return os.ErrDeadlineExceeded
		}
	}
	if s.over != nil {
		s.give()
		return s.over
	}
	return nil
}

func (s *socket) give() { <-s.turn }

// appendHead appends the head of a frame that is a whole binary message of size bytes.
func appendHead(dst []byte, size int) []byte {
	dst = append(dst, 0x80|websocket.BinaryMessage)
	switch {
	case size < 126:
		return append(dst, byte(size))
	case size < 1<<16:
		return binary.BigEndian.AppendUint16(append(dst, 126), uint16(size))
	default:
		return binary.BigEndian.AppendUint64(append(dst, 127), uint64(size))
	}
}
