package inputhost

import (
	"testing"
	"time"

	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
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

// A Publish of several records holds up to max_batch bytes. A larger one is refused to its stream, also where the queue
// takes large messages: its batch could be more than a store reads, whose link would end with the extents of all.
func TestHost_LargePublishEndsItsStreamOnly(t *testing.T) {
	bubble(t, 3, nil, func(r *harness) {
		name, _, err := metadata.Read[metadata.NameRecord](r.t.Context(), r.meta, metadata.Names, metadata.NameKey(path), metadata.One)
		if err != nil {
			t.Fatal(err)
		}
		_, err = metadata.Change(r.t.Context(), r.meta, metadata.Queues, metadata.QueueKey(name.Queue), func(q *metadata.QueueRecord) error {
			q.Spec.MaxMessage = core.MaxMaxMessage
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		other := r.publisher("other", path)
		other.send()
		other.flush()
		link, err := r.pool.Link(r.t.Context(), r.self.Address, "/v1/publish")
		if err != nil {
			t.Fatal(err)
		}
		stream, got := r.greet(link)
		if f := <-got; f.Type != wire.TypePublishHelloOK {
			t.Fatalf("frame %d for a hello", f.Type)
		}
		const all = wire.MaxBatchBytes + core.MaxMaxMessage + wire.MaxAttributes
		var records []byte
		for _, size := range []int{all / 2, all - all/2} {
			record := wire.Record{ID: core.MessageID{ID: core.NewID(time.Now())}, Payload: make([]byte, size-wire.RecordHeaderLen-len(core.ID{}))}
			if records, err = wire.AppendRecord(records, &record); err != nil {
				t.Fatal(err)
			}
		}
		pub := wire.Publish{First: 1, Records: records}
		if err := link.Conn.Send(r.t.Context(), wire.AppendFrame(nil, wire.TypePublish, stream, pub.Append(nil))); err != nil {
			t.Fatal(err)
		}
		if f := <-got; f.Type != wire.TypeError || core.CodeOf(convert.FrameError(f.Body)) != core.CodeTooLarge {
			t.Errorf("frame %d for a Publish of %d bytes", f.Type, len(records))
		}
		for _, s := range r.stores {
			s.set(func() {
				if n := len(s.conns); n != 1 {
					t.Errorf("the host has connected to store %s %d times", s.id, n)
				}
			})
		}
		other.send()
		other.flush()
		r.all(2)
	})
}
