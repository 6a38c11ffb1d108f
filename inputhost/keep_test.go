package inputhost

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// A waiting record keeps its own bytes, not those of a large message that it was a small part of.
func TestKeep(t *testing.T) {
	m := ws.Copy(make([]byte, 100<<10))
	small, hold := keep(m.Bytes[:1000], m)
	if hold == m || len(small) != 1000 || &small[0] == &m.Bytes[0] {
		t.Errorf("a small part of a large message keeps the message: %d bytes", len(small))
	}
	hold.Release()
	large, hold := keep(m.Bytes[:50<<10], m)
	if hold != m || &large[0] != &m.Bytes[0] {
		t.Error("a large part of a message was copied")
	}
	hold.Release()
	m.Release()
}

// A record that came alone does not keep the buffer that it was read into, which has room for a hundred such.
func TestKeep_SmallMessage(t *testing.T) {
	m := ws.Copy(make([]byte, 4<<10))
	m.Bytes = m.Bytes[:40]
	small, hold := keep(m.Bytes, m)
	if hold == m || cap(small) > 64 {
		t.Errorf("40 bytes keep %d", cap(small))
	}
	hold.Release()
	m.Release()
}

// Chunks count with what they take beside their records: many small ones do not take more memory than the host may use.
func TestHost_BoundsSmallRecordsInFlight(t *testing.T) {
	const most, frames = 64 << 10, 1000
	bubble(t, 3, func(c *Config) { c.MaxInFlight = most }, func(r *harness) {
		link, err := r.pool.Link(r.t.Context(), r.self.Address, "/v1/publish")
		if err != nil {
			t.Fatal(err)
		}
		stream, got := r.greet(link)
		if f := <-got; f.Type != wire.TypePublishHelloOK {
			t.Fatalf("frame %d for a hello", f.Type)
		}
		for _, s := range r.stores {
			s.set(func() { s.delay = time.Second })
		}
		done := make(chan struct{})
		defer close(done)
		go func() {
			for {
				select {
				case <-got:
				case <-done:
					return
				}
			}
		}()
		for i := range uint64(frames) {
			records, err := wire.AppendRecord(nil, &wire.Record{ID: core.MessageID{ID: core.NewID(time.Now())}, Payload: []byte("x")})
			if err != nil {
				t.Fatal(err)
			}
			pub := wire.Publish{First: i + 1, Records: records}
			link.Conn.Post(wire.AppendFrame(nil, wire.TypePublish, stream, pub.Append(nil)))
		}
		sleep(500 * time.Millisecond)
		if taken := frames - r.counter("columba_inputhost_throttled_messages_total", limitHost); taken > most/chunkCost+1 {
			t.Errorf("the host took %.0f chunks at once", taken)
		}
		sleep(2 * time.Second)
		if n := r.host.inFlight.Load(); n != 0 {
			t.Errorf("%d bytes in flight after all answers", n)
		}
	})
}
