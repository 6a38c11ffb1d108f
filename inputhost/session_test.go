package inputhost

import (
	"testing"

	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// A connection has room for so many streams; one that ends makes room for another.
func TestHost_StreamsOfAConnectionAreBounded(t *testing.T) {
	bubble(t, 3, func(c *Config) { c.Links.PerConnection = 2 }, func(r *harness) {
		link, err := r.pool.Link(r.t.Context(), r.self.Address, "/v1/publish")
		if err != nil {
			t.Fatal(err)
		}
		var streams []uint32
		for range 2 {
			stream, got := r.greet(link)
			if f := <-got; f.Type != wire.TypePublishHelloOK {
				t.Fatalf("frame %d for a hello", f.Type)
			}
			streams = append(streams, stream)
		}
		for range 2 { // what was refused leaves nothing behind
			_, got := r.greet(link)
			if f := <-got; f.Type != wire.TypeError || core.CodeOf(convert.FrameError(f.Body)) != core.CodeThrottled {
				t.Fatalf("frame %d for a stream too many", f.Type)
			}
		}
		link.Conn.Post(wire.AppendFrame(nil, wire.TypePublishClose, streams[0], nil))
		if _, got := r.greet(link); (<-got).Type != wire.TypePublishHelloOK {
			t.Error("there is no room after a stream has ended")
		}
	})
}
