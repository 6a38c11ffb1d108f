package ws

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/columbamq/columba/core"
)

// TestConn_EndsSlowMessages: any byte is a sign of life, but a message has to end.
func TestConn_EndsSlowMessages(t *testing.T) {
	for name, c := range map[string]struct {
		size, piece int
		every       time.Duration
		ended       time.Duration // at the latest; 0: not at all
	}{
		"a byte now and then":         {1000, 1, 2 * time.Second, 13 * time.Second},
		"a piece of a large one":      {1 << 20, 1 << 10, time.Second, 13 * time.Second},
		"just as fast as it may":      {4 << 20, 64 << 10, time.Second, 0},
		"small pieces, all in time":   {9, 1, time.Second, 0},
		"nothing after the beginning": {1 << 20, 1 << 10, time.Hour, readTimeout + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := serveAdmitted(t).connect(one)
				begin := time.Now()
				got := make(chan int, 1)
				end := make(chan error, 1)
				wait := running(t, l.server, func(m *Message) error { got <- len(m.Bytes); return nil })
				go func() { end <- wait() }()
				if err := l.send(head(0x82, c.size)); err != nil {
					t.Fatal(err)
				}
				go func() {
					for left := c.size; left > 0; left -= c.piece {
						if l.send(make([]byte, min(c.piece, left))) != nil {
							return
						}
						time.Sleep(c.every)
					}
				}()
				select {
				case n := <-got:
					if c.ended != 0 || n != c.size {
						t.Errorf("a message of %d bytes came", n)
					}
				case err := <-end:
					if d := time.Since(begin); c.ended == 0 || d > c.ended {
						t.Errorf("the connection ended after %s: %v", d, err)
					}
					if want := core.CodeThrottled; c.every < time.Hour && core.CodeOf(err) != want {
						t.Errorf("Run = %v, want %s", err, want)
					}
				}
				l.client.Abort(nil)
				time.Sleep(2 * time.Hour) // the writer ends
			})
		})
	}
}

// TestConn_PauseInALargeMessage: what came fast gives a message time for a pause, however late it came before that.
func TestConn_PauseInALargeMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := serveAdmitted(t).connect(one)
		got := make(chan int, 1)
		running(t, l.server, func(m *Message) error { got <- len(m.Bytes); return nil })
		time.Sleep(2 * time.Second)
		const size = 8 << 20
		l.send(head(0x82, size), make([]byte, 1)) // moves the read deadline
		synctest.Wait()
		l.send(make([]byte, size/2))
		synctest.Wait()
		time.Sleep(readTimeout - 2*time.Second)
		if err := l.send(make([]byte, size/2-1)); err != nil {
			t.Fatalf("the connection has ended: %v", err)
		}
		<-got
	})
}

// TestConn_IdleAfterASlowMessage: the deadline of a message ends with it.
func TestConn_IdleAfterASlowMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := serveAdmitted(t).connect(one)
		got := make(chan int, 1)
		running(t, l.server, func(m *Message) error { got <- len(m.Bytes); return nil })
		l.send(head(0x82, 4))
		for range 4 {
			time.Sleep(2 * time.Second)
			l.send([]byte{0})
		}
		<-got
		time.Sleep(readTimeout - time.Second)
		if err := l.send(head(0x82, 4), make([]byte, 4)); err != nil {
			t.Fatalf("the connection has ended: %v", err)
		}
		<-got
	})
}

// TestConn_GivesSignsOfLifeWhileItWaits: a peer asks a host that does not read, since its message waits for room. It
// must not count as lost.
func TestConn_GivesSignsOfLifeWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveAdmitted(t)
		for _, size := range []int{8 << 20, 8 << 20, 8 << 20, 8 << 20, 4 << 20, 8 << 20} { // the last one goes on without room
			stalled := s.connect(one)
			running(t, stalled.server, ignore)
			go stalled.send(head(0x82, size), make([]byte, size-1))
			synctest.Wait()
		}
		time.Sleep(exemptAfter + pressEvery)
		l := s.connect(one)
		running(t, l.server, ignore)
		running(t, l.client, ignore)
		if err := l.client.Send(t.Context(), frame(1, 1<<20)); err != nil {
			t.Fatal(err)
		}
		for range 30 { // until the first of them ends
			time.Sleep(100 * time.Millisecond)
			if !s.waits(l.server) {
				t.Fatal("the message does not wait")
			}
			l.client.Ping()
			if d := l.client.Silent(); d > signEvery+100*time.Millisecond {
				t.Fatalf("silent for %s, want at most %s", d, signEvery)
			}
		}
	})
}

// TestConn_WaitForRoomDoesNotCount: a message that has nearly used up its time waits for room, and has as much time
// after it.
func TestConn_WaitForRoomDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveAdmitted(t)
		l := s.connect(one)
		got := make(chan int, 1)
		running(t, l.server, func(m *Message) error { got <- len(m.Bytes); return nil })
		const size, early = 100 << 10, 1 << 10
		l.send(head(0x82, size))
		for i := range 9 {
			l.send(make([]byte, early))
			if i == 8 {
				break
			}
			time.Sleep(1200 * time.Millisecond)
		}
		for _, size := range []int{8 << 20, 8 << 20, 8 << 20, 8 << 20, 4 << 20, 96 << 10} { // all that the address may have, but for some KiB
			stalled := s.connect(one)
			running(t, stalled.server, ignore)
			stalled.send(head(0x82, size), make([]byte, size-1))
		}
		synctest.Wait()
		l.send(make([]byte, 40<<10))
		synctest.Wait()
		if !s.waits(l.server) {
			t.Fatal("the message does not wait")
		}
		time.Sleep(exemptAfter + pressEvery)
		l.send(make([]byte, size-9*early-40<<10))
		<-got
	})
}
