package ws

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/netmem"
)

// served is a server with an Admission, to which a test connects from any address.
type served struct {
	*Admission
	t        *testing.T
	listener *netmem.Listener
	accepted chan *Conn
}

func serveAdmitted(t *testing.T) *served {
	s := &served{
		Admission: NewAdmission(Limits{Connections: 10_000, Streams: 1, PerConnection: 1}, nil),
		t:         t, listener: netmem.Listen("test"), accepted: make(chan *Conn, 1),
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.RemoteAddr = r.Header.Get("From")
		if c, err := Upgrade(w, r, Options{Admission: s.Admission}); err == nil {
			s.accepted <- c
		}
	})}
	var wg sync.WaitGroup
	wg.Go(func() { server.Serve(s.listener) })
	t.Cleanup(func() {
		server.Close()
		wg.Wait()
	})
	return s
}

func (s *served) dial(from string) (*Conn, error) {
	return Dial(context.Background(), "test", "/", Options{
		Header:  http.Header{"From": {from}},
		NetDial: func(ctx context.Context, _, _ string) (net.Conn, error) { return s.listener.Dial(ctx) },
	})
}

// connect makes a connection. Neither end runs.
func (s *served) connect(from string) link {
	s.t.Helper()
	c, err := s.dial(from)
	if err != nil {
		s.t.Fatalf("Dial: %v", err)
	}
	l := link{client: c, server: <-s.accepted}
	s.t.Cleanup(func() {
		l.client.Abort(nil)
		l.server.Abort(nil)
	})
	return l
}

// held is how many bytes are counted, of all and of the address of a connection.
func (s *served) held(c *Conn) (all, address int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.received, c.place.from.received
}

func (s *served) waits(c *Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.place.waits
}

// head is that of a frame with a mask of zeros.
func head(first byte, size int) []byte {
	return append(binary.BigEndian.AppendUint64([]byte{first, 0xff}, uint64(size)), 0, 0, 0, 0)
}

// send writes without a look at what a frame is; the server may have ended the connection.
func (l *link) send(b ...[]byte) error {
	for _, b := range b {
		if _, err := l.client.ws.NetConn().Write(b); err != nil {
			return err
		}
	}
	return nil
}

// zeros are the bytes of messages whose content is of no interest.
var zeros = make([]byte, 8<<20)

const (
	one   = "192.0.2.1:1"
	other = "192.0.2.2:1"
)

// TestAdmission_BoundsHalfReceivedMessages has connections of one address send all but the end of large messages. Their
// memory is bounded, another address goes on, and at last they are ended.
func TestAdmission_BoundsHalfReceivedMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveAdmitted(t)
		const greedy, size = 10, 8 << 20
		var ends []func() error
		for range greedy {
			l := s.connect(one)
			ends = append(ends, running(t, l.server, ignore))
			go l.send(head(0x82, size), zeros[:size-1])
		}
		synctest.Wait()
		honest := s.connect(other)
		got := make(chan int, 1)
		running(t, honest.server, func(m *Message) error { got <- len(m.Bytes); return nil })
		running(t, honest.client, ignore)
		for range 15 {
			all, _ := s.held(honest.server)
			if all > receiveRoom/4*3 {
				t.Fatalf("%d bytes are held by one address, want at most %d", all, receiveRoom/4*3)
			}
			if err := honest.client.Send(t.Context(), frame(1, 1<<20)); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			<-got
			if d := time.Since(begin); d > 0 {
				t.Errorf("a message of another address took %s", d)
			}
			time.Sleep(time.Second)
		}
		for _, end := range ends {
			switch err := end(); core.CodeOf(err) {
			case core.CodeThrottled: // it found no room, or was slow while others waited
			case core.CodeUnavailable: // it was silent, and nobody waited
			default:
				t.Errorf("Run = %v, want %s or %s", err, core.CodeThrottled, core.CodeUnavailable)
			}
		}
		if all, _ := s.held(honest.server); all != 0 || len(s.mu.waiting) != 0 || s.mu.exempt != nil {
			t.Errorf("%d bytes are held, %d wait, when all have gone", all, len(s.mu.waiting))
		}
	})
}

// TestAdmission_MessagesDoNotWaitForEachOther: each of many messages holds half of what it needs when there is no more
// room. All of them come.
func TestAdmission_MessagesDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveAdmitted(t)
		const conns, size = 40, 2 << 20
		message := bytes.Repeat([]byte{7}, size)
		var all sync.WaitGroup
		var rest []func()
		begin := time.Now()
		for range conns {
			l := s.connect(one)
			all.Add(1)
			running(t, l.server, func(m *Message) error {
				if len(m.Bytes) != size || !bytes.Equal(m.Bytes, message) {
					t.Errorf("a message of %d bytes came, or another one", len(m.Bytes))
				}
				all.Done()
				return nil
			})
			half := size/2 + 1
			go l.send(head(0x82, size), message[:half])
			rest = append(rest, func() { l.send(message[half:]) })
		}
		synctest.Wait()
		for _, send := range rest {
			go send()
		}
		all.Wait()
		if d := time.Since(begin); d > 2*time.Second {
			t.Errorf("all messages took %s, want little more than %s", d, exemptAfter)
		}
	})
}

// TestAdmission_EndsSlowMessagesWhileOthersWait: messages that stall hold all that their address may have, and another
// of its connections wants to send.
func TestAdmission_EndsSlowMessagesWhileOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveAdmitted(t)
		const size, needs = 8 << 20, 4<<20 + 1 // in a buffer of 8 MiB
		var ends []func() error
		for range 4 {
			l := s.connect(one)
			ends = append(ends, running(t, l.server, ignore))
			l.send(head(0x82, size), zeros[:size-1])
		}
		begin := time.Now()
		l := s.connect(one)
		got := make(chan int, 1)
		running(t, l.server, func(m *Message) error { got <- len(m.Bytes); return nil })
		for range 4 { // which come, one after another, without room
			l.send(head(0x82, needs), zeros[:needs])
			<-got
		}
		if d := time.Since(begin); d < 4*exemptAfter || d > 5*exemptAfter {
			t.Errorf("four messages took %s", d)
		}
		go func() {
			for range 8 {
				l.send(head(0x82, needs), zeros[:needs])
			}
		}()
		for range 8 {
			<-got
		}
		for _, end := range ends {
			if err := end(); core.CodeOf(err) != core.CodeThrottled {
				t.Errorf("Run = %v, want %s", err, core.CodeThrottled)
			}
		}
		if d, most := time.Since(begin), pressedPause+size/pressedRate*time.Second; d > most+exemptAfter {
			t.Errorf("the stalled messages were in the way for %s, want at most %s", d, most)
		}
	})
}

// TestAdmission_ServesWhoHoldsLeast: two addresses hold all the room, and one has more messages that wait. The room
// that becomes free goes to a third address first.
func TestAdmission_ServesWhoHoldsLeast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveAdmitted(t)
		const size, greedy = 1 << 20, 10
		got := make(chan struct{}, greedy+1)
		connect := func(from string) link {
			l := s.connect(from)
			running(t, l.server, func(*Message) error { got <- struct{}{}; return nil })
			return l
		}
		stall := func(from string, size int) link {
			l := connect(from)
			l.send(head(0x82, size), zeros[:size-1])
			return l
		}
		honest := connect(other)
		waiting := []link{honest}
		for range greedy {
			waiting = append(waiting, connect(one))
		}
		for _, l := range waiting { // so that the next messages want as much at once
			l.send(head(0x82, size), zeros[:size])
			<-got
		}
		first := stall(one, 8<<20)
		for _, size := range []int{8 << 20, 8 << 20, 8 << 20, 4 << 20} {
			stall(one, size)
		}
		stall("192.0.2.3:1", 8<<20)
		stall("192.0.2.3:1", 4<<20)
		for _, l := range waiting[1:] {
			go l.send(head(0x82, size), zeros[:size-1])
		}
		time.Sleep(exemptAfter + pressEvery) // one of them goes on without room, and stalls
		go honest.send(head(0x82, size), zeros[:size])
		synctest.Wait()
		if !s.waits(honest.server) {
			t.Fatal("the message does not wait")
		}
		first.server.Abort(nil)
		synctest.Wait()
		if s.waits(honest.server) || len(got) != 1 {
			t.Error("the message of the address that holds nothing still waits")
		}
	})
}

// TestAdmission_SmallMessagesDoNotWait: a message without bytes above uncounted comes at once though there is no room,
// whatever came before it.
func TestAdmission_SmallMessagesDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveAdmitted(t)
		l := s.connect(one)
		got := make(chan int, 1)
		running(t, l.server, func(m *Message) error { got <- len(m.Bytes); return nil })
		for _, size := range []int{1 << 20, 10, uncounted} {
			l.send(head(0x82, 1<<20), zeros[:1<<20])
			<-got
			var stalled []link
			for _, size := range []int{8 << 20, 8 << 20, 8 << 20, 8 << 20, 4 << 20} { // all that the address may have, but for some KiB
				stalled = append(stalled, s.connect(one))
				last := stalled[len(stalled)-1]
				running(t, last.server, ignore)
				last.send(head(0x82, size), zeros[:size-1])
			}
			synctest.Wait()
			begin := time.Now()
			l.send(head(0x82, size), zeros[:size])
			if n := <-got; n != size {
				t.Errorf("a message of %d bytes came, want %d", n, size)
			}
			if d, small := time.Since(begin), size <= uncounted; small != (d == 0) {
				t.Errorf("a message of %d bytes took %s without room", size, d)
			}
			for _, stalled := range stalled {
				stalled.client.Abort(nil)
			}
			synctest.Wait()
		}
	})
}

// TestAdmission_CountsNoMessageBeforeItsBytes: no memory is given for a head, whatever came before it.
func TestAdmission_CountsNoMessageBeforeItsBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveAdmitted(t)
		l := s.connect(one)
		running(t, l.server, ignore)
		const size = 1 << 20
		for _, step := range []struct {
			send []byte
			want int64
		}{
			{head(0x82, size), 0},
			{zeros[:size/2], size/2 - uncounted},
			{zeros[:size/2], 0},
			{head(0x82, size), 0},
			{zeros[:1], size - uncounted}, // of the size before
			{zeros[:size-1], 0},
		} {
			l.send(step.send)
			synctest.Wait()
			if all, address := s.held(l.server); all != step.want || address != step.want {
				t.Errorf("after %d bytes more %d are held, want %d", len(step.send), all, step.want)
			}
		}
	})
}
