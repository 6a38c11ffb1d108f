package ws

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
)

// segmentsOf makes segments with so many bytes each.
func segmentsOf(sizes ...int) (all []segment, joined []byte) {
	for i, n := range sizes {
		s := segment{b: bytes.Repeat([]byte{byte('a' + i%26)}, n)}
		all, joined = append(all, s), append(joined, s.b...)
	}
	return all, joined
}

// readFrame reads one frame that has no mask.
func readFrame(t *testing.T, from io.Reader) (first byte, payload []byte) {
	t.Helper()
	read := func(n uint64) []byte {
		b := make([]byte, n)
		if _, err := io.ReadFull(from, b); err != nil {
			t.Fatalf("read %d bytes of a frame: %v", n, err)
		}
		return b
	}
	head := read(2)
	size := uint64(head[1])
	switch size {
	case 126:
		size = uint64(binary.BigEndian.Uint16(read(2)))
	case 127:
		size = binary.BigEndian.Uint64(read(8))
	}
	return head[0], read(size)
}

func TestSocket_WritesAMessageAsOneFrame(t *testing.T) {
	many := make([]int, 3000)
	for i := range many {
		many[i] = 10
	}
	for _, sizes := range [][]int{
		{0}, {1}, {125}, {126}, {gathered - maxHead}, {gathered}, {65535}, {65536}, {60, 250_000}, {60, 20_000, 60, 300_000, 60}, many,
	} {
		here, there := net.Pipe()
		s := newSocket(here)
		segments, want := segmentsOf(sizes...)
		written := make(chan error, 1)
		go func() { written <- s.writeMessage(segments, time.Now().Add(writeTimeout)) }()
		if first, got := readFrame(t, there); first != 0x82 || !bytes.Equal(got, want) {
			t.Errorf("segments %.60v: got a frame %#x of %d bytes, want 0x82 and the %d bytes of the segments", sizes, first, len(got), len(want))
		}
		if err := <-written; err != nil {
			t.Errorf("segments %.60v: %v", sizes, err)
		}
		here.Close()
	}
}

// TestSocket_ControlFrameWaitsForTheMessage: the library sets the deadline of a control frame while a message is being
// written. The frame comes after the message, or not at all, and the message keeps its own deadline.
func TestSocket_ControlFrameWaitsForTheMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer here.Close()
		s := newSocket(here)
		segments, want := segmentsOf(60, 100_000)
		written, pinged := make(chan error, 1), make(chan error, 1)
		go func() { written <- s.writeMessage(segments, time.Now().Add(writeTimeout)) }()
		synctest.Wait()
		ping := func(patience time.Duration) error {
			s.SetWriteDeadline(time.Now().Add(patience))
			_, err := s.Write([]byte{0x80 | websocket.PingMessage, 0})
			return err
		}
		if err := ping(time.Second); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a ping beside a message that is not read = %v, want a timeout", err)
		}
		go func() { pinged <- ping(time.Second) }()
		if first, got := readFrame(t, there); first != 0x82 || !bytes.Equal(got, want) {
			t.Errorf("got a frame %#x of %d bytes, want the message", first, len(got))
		}
		if first, _ := readFrame(t, there); first != 0x89 {
			t.Errorf("got a frame %#x after the message, want the ping", first)
		}
		if err := <-written; err != nil {
			t.Errorf("the message: %v", err)
		}
		if err := <-pinged; err != nil {
			t.Errorf("the ping: %v", err)
		}
	})
}

func TestSocket_NothingFollowsACloseOrAFailure(t *testing.T) {
	here, there := net.Pipe()
	s := newSocket(here)
	go io.Copy(io.Discard, there)
	if _, err := s.Write([]byte{0x80 | websocket.CloseMessage, 0}); err != nil {
		t.Fatal(err)
	}
	segments, _ := segmentsOf(10)
	if err := s.writeMessage(segments, time.Time{}); !errors.Is(err, websocket.ErrCloseSent) {
		t.Errorf("a message after the close = %v, want %v", err, websocket.ErrCloseSent)
	}
	here.Close()

	here, there = net.Pipe()
	s = newSocket(here)
	large, _ := segmentsOf(10_000)
	if err := s.writeMessage(large, time.Now().Add(-time.Second)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a message that is not read = %v, want a timeout", err)
	}
	go io.Copy(io.Discard, there)
	if _, err := s.Write([]byte{0x80 | websocket.PingMessage, 0}); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a ping after a message that was cut = %v, want its error", err)
	}
	here.Close()
}
