package ws

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"github.com/columbamq/columba/core"
)

// small is a frame with a short payload and a mask of zeros.
func small(first byte, payload int) []byte {
	return append([]byte{first, 0x80 | byte(payload), 0, 0, 0, 0}, make([]byte, payload)...)
}

// TestConn_EndsFloods sends frames that cost more than they carry. The connection ends, and for a while the address
// gets no other.
func TestConn_EndsFloods(t *testing.T) {
	for name, c := range map[string]struct {
		first, next []byte
		enough      int // frames of it
	}{
		"pings":           {nil, small(0x89, 125), cheapAtOnce + 1},
		"pongs":           {nil, small(0x8a, 0), cheapAtOnce + 1},
		"empty messages":  {nil, small(0x82, 0), cheapAtOnce + 1},
		"small fragments": {small(0x02, 1), small(0x00, 1), cheapAtOnce + 1},
		"empty fragments": {small(0x02, 1), small(0x00, 0), 1},
		"empty beginning": {nil, small(0x02, 0), 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serveAdmitted(t)
				l := s.connect(one)
				end := running(t, l.server, ignore)
				closed := make(chan error, 1)
				go func() {
					_, _, err := l.client.ws.ReadMessage()
					closed <- err
				}()
				for _, b := range bytes.SplitAfter(append(bytes.Clone(c.first), bytes.Repeat(c.next, c.enough)...), []byte{0, 0}) { // heads come in parts
					l.send(b)
				}
				if err := end(); core.CodeOf(err) != core.CodeThrottled {
					t.Errorf("Run = %v, want %s", err, core.CodeThrottled)
				}
				var why *websocket.CloseError
				if err := <-closed; !errors.As(err, &why) || why.Code != websocket.ClosePolicyViolation {
					t.Errorf("the peer reads %v, want code %d", err, websocket.ClosePolicyViolation)
				}
				if _, err := s.dial("192.0.2.1:7"); core.CodeOf(err) != core.CodeThrottled {
					t.Errorf("Dial after the flood = %v, want %s", err, core.CodeThrottled)
				}
				s.connect(other)
				time.Sleep(refusedFor)
				s.connect(one)
			})
		})
	}
}

// TestConn_LetsFewCheapFramesPass sends as many of them as it may, and fragments large enough.
func TestConn_LetsFewCheapFramesPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveAdmitted(t)
		l := s.connect(one)
		got := make(chan int, 10)
		running(t, l.server, func(m *Message) error { got <- len(m.Bytes); return nil })
		go func() { l.client.ws.ReadMessage() }() // pongs
		l.send(bytes.Repeat(small(0x89, 125), cheapAtOnce))
		for range 1000 {
			time.Sleep(time.Second)
			l.send(bytes.Repeat(small(0x8a, 3), cheapFrames-1))
		}
		large := append([]byte{0x00, 0xfe, smallFragment >> 8, 0, 0, 0, 0, 0}, make([]byte, smallFragment)...)
		l.send(small(0x02, 1), bytes.Repeat(large, 2000), small(0x80, 0))
		if want := 1 + 2000*smallFragment; <-got != want {
			t.Errorf("a message came that has not %d bytes", want)
		}
		l.send(bytes.Repeat(small(0x82, 1), 1000))
		for range 1000 {
			<-got
		}
	})
}

// TestConn_PingsWithoutAnswerAreFew asks a peer whose reader stands still for signs of life, again and again. That must
// not look like a flood to it.
func TestConn_PingsWithoutAnswerAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := serveAdmitted(t).connect(one)
		stands, first := make(chan struct{}), true
		got := make(chan struct{})
		running(t, l.server, func(*Message) error {
			if first {
				first = false
				<-stands
				return nil
			}
			close(got)
			return nil
		})
		running(t, l.client, ignore)
		for range 2 {
			if err := l.client.Send(t.Context(), frame(1, 10)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // so that they are two messages
		}
		for range 400 {
			time.Sleep(100 * time.Millisecond)
			l.client.Ping()
		}
		close(stands)
		<-got
		synctest.Wait()
		if d := l.client.Silent(); d > 0 {
			t.Errorf("silent for %s after the reader went on", d)
		}
	})
}
