package outputhost

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/columbamq/columba/wire"
)

// TestConsumer_CloseIsAnsweredAfterItsDeliveries: a consumer closes while a pump has chosen messages for it and has not
// sent them. The answer comes after them, so that the consumer can return them.
func TestConsumer_CloseIsAnsweredAfterItsDeliveries(t *testing.T) {
	for _, streams := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			b := newHarness(t)
			g := b.large(1, 3)
			conn := b.connect()
			conn.read()
			var consumers []*consumer
			for range streams {
				consumers = append(consumers, conn.consume(g))
			}
			var w work
			g.mu.Lock()
			g.mu.pumping = true
			g.findLocked(&w, b.deps.Now())
			g.mu.Unlock()
			for _, c := range consumers {
				c.HandleFrame(wire.Frame{Type: wire.TypeConsumeClose}, nil)
			}
			synctest.Wait()
			g.do(&w)
			g.mu.Lock()
			g.mu.pumping = false
			g.mu.Unlock()
			g.pump()
			synctest.Wait()
			conn.mu.Lock()
			defer conn.mu.Unlock()
			sent := conn.messages
			if sent == 0 {
				t.Fatal("no message was on its way")
			}
			if want := slices.Repeat([]int{sent}, streams); !slices.Equal(conn.closed, want) {
				t.Errorf("%d deliveries were sent, and the closes of %d streams were answered after %v of them", sent, streams, conn.closed)
			}
		})
	}
}

// TestConsumer_CloseEndsTheStream: the first close is answered, the second one frees the stream's place. A stream that
// has joined no group holds nothing: its first close does both.
func TestConsumer_CloseEndsTheStream(t *testing.T) {
	for _, joined := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := newHarness(t)
			conn := b.connect()
			conn.read()
			c := &consumer{s: conn.s, h: b.Host}
			closes := 1
			if joined {
				c, closes = conn.consume(b.large(1, 3)), 2
			}
			stream, err := conn.s.mux.Open(c)
			if err != nil {
				t.Fatal(err)
			}
			c.stream = stream
			for range closes {
				if n := conn.s.mux.Streams(); n != 1 {
					t.Fatalf("%d streams before the last close", n)
				}
				c.HandleFrame(wire.Frame{Type: wire.TypeConsumeClose}, nil)
			}
			synctest.Wait()
			if n := conn.s.mux.Streams(); n != 0 {
				t.Errorf("%d streams after the last close", n)
			}
			conn.mu.Lock()
			defer conn.mu.Unlock()
			if len(conn.closed) != 1 {
				t.Errorf("%d closes were answered, want one", len(conn.closed))
			}
		})
	}
}
