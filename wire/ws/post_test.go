package ws

import (
	"testing"
	"testing/synctest"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// TestConn_PostIsNotDroppedByAFullQueue fills the queue far beyond its bound, with a sender that waits for room
// besides: what is posted then still arrives, in its order.
func TestConn_PostIsNotDroppedByAFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memoryLink(t, Options{SendBytes: 1000, ControlBytes: 4000}, Options{})
		bulk := frame(0, 1<<20)
		if err := l.client.PushOwned(bulk[:12], bulk[12:], nil); err != nil {
			t.Fatal(err)
		}
		sent := make(chan error, 1)
		go func() { sent <- l.client.Send(t.Context(), frame(9, 10)) }()
		synctest.Wait()
		for i := range 3 {
			l.client.Post(frame(1+i, 8))
		}
		streams := make(chan uint32, 10)
		running(t, l.server, eachFrame(func(f wire.Frame) error { streams <- f.Stream; return nil }))
		running(t, l.client, ignore)
		for _, want := range []uint32{0, 1, 2, 3, 9} {
			if got := <-streams; got != want {
				t.Errorf("frame %d arrived, want %d", got, want)
			}
		}
		if err := <-sent; err != nil {
			t.Errorf("Send = %v", err)
		}
	})
}

// TestConn_PostEndsAConnectionWhosePeerDoesNotRead posts exactly what there is room for, and then one byte more.
func TestConn_PostEndsAConnectionWhosePeerDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const room = 100_000
		l := memoryLink(t, Options{ControlBytes: room}, Options{})
		big := frame(1, room-12-segmentCost-20)
		l.client.Post(big)
		if used := l.client.queued(); used != room-20 {
			t.Fatalf("%d bytes count as control frames, want %d", used, room-20)
		}
		l.client.Post(frame(2, 8)) // 20 bytes: it fits, as its segment's cost is not asked for beforehand
		if err := l.client.Send(t.Context(), frame(3, 1)); err != nil {
			t.Fatalf("Send = %v, want the connection to live at its bound", err)
		}
		l.client.Post(frame(4, 1))
		if err := l.client.Send(t.Context(), frame(5, 1)); core.CodeOf(err) != core.CodeUnavailable {
			t.Errorf("Send after too many control frames = %v, want %s", err, core.CodeUnavailable)
		}
		end := running(t, l.client, ignore)
		if err := end(); core.CodeOf(err) != core.CodeThrottled {
			t.Errorf("Run = %v, want %s", err, core.CodeThrottled)
		}
	})
}

// TestConn_PostedFramesFreeTheirRoom sends many times the room for control frames to a peer that reads.
func TestConn_PostedFramesFreeTheirRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memoryLink(t, Options{ControlBytes: 4000}, Options{})
		got := 0
		running(t, l.server, eachFrame(func(wire.Frame) error { got++; return nil }))
		running(t, l.client, ignore)
		for i := range 1000 {
			l.client.Post(frame(i, 8))
			if i%10 == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		if used := l.client.queued(); got != 1000 || used != 0 {
			t.Errorf("%d frames arrived and %d bytes still count, want 1000 and 0", got, used)
		}
	})
}

// queued is what control frames that were not written take of their room.
func (c *Conn) queued() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.queue.control
}
