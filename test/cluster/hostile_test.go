package cluster

import (
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// rawStream is a stream that a test speaks by itself.
type rawStream struct {
	mu struct {
		sync.Mutex
		types    []wire.FrameType
		failures int
		closed   bool
	}
}

func (s *rawStream) HandleFrame(f wire.Frame, _ *ws.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.types = append(s.mu.types, f.Type)
	if f.Type == wire.TypeAckResult {
		var r wire.AckResult
		if r.Decode(f.Body) == nil {
			s.mu.failures += len(r.Entries)
		}
	}
}

func (s *rawStream) Closed(error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.closed = true
}

func (s *rawStream) failures() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.failures
}

func (s *rawStream) last() wire.FrameType {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.types) == 0 {
		return 0
	}
	return s.mu.types[len(s.mu.types)-1]
}

// TestCluster_FloodOfBadAcksIsAnsweredBriefly acks what was never delivered, as much as fits into one frame.
func TestCluster_FloodOfBadAcksIsAnsweredBriefly(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		p := w.peers()
		defer p.Close()
		link, err := p.Link(w.t.Context(), w.hosts[Output].addr, "/v1/consume")
		w.ok(err)
		s := &rawStream{}
		id, err := link.Open(s)
		w.ok(err)
		hello, err := proto.Marshal(&pb.ConsumeHello{Queue: queue, Group: "g", Client: "bad"})
		w.ok(err)
		w.ok(link.Conn.Send(w.t.Context(), wire.AppendFrame(nil, wire.TypeConsumeHello, id, hello)))
		w.eventually("the stream is open", 5*time.Second, func() bool { return s.last() == wire.TypeConsumeHelloOK })
		bad := wire.Settled{Handle: 7}
		for i := range 50_000 {
			bad.Runs = append(bad.Runs, wire.SeqRun{Base: core.Seq(i*100_000 + 1), Count: 65_535, Attempt: 1})
		}
		w.ok(link.Conn.Send(w.t.Context(), wire.AppendFrame(nil, wire.TypeAck, id, bad.Append(nil))))
		w.eventually("the refusal", 5*time.Second, func() bool { return s.last() == wire.TypeAckResult })
		if n := s.failures(); n < 1 || n > 1000 {
			t.Errorf("%d refusals are listed, want 1 to 1,000", n)
		}
		// The stream still works.
		con := w.consumer("g")
		w.publish("a")
		w.ok(w.next(con, "a", 1).Ack())
		w.close(con)
	})
}

// TestCluster_FramesOutOfPlaceEndTheStreamOnly sends every frame before the hello.
func TestCluster_FramesOutOfPlaceEndTheStreamOnly(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		con := w.consumer("g")
		p := w.peers()
		defer p.Close()
		for host, path := range map[core.HostID]string{Output: "/v1/consume", Input: "/v1/publish"} {
			link, err := p.Link(w.t.Context(), w.hosts[host].addr, path)
			w.ok(err)
			for frame := range wire.FrameType(64) {
				s := &rawStream{}
				id, err := link.Open(s)
				if err != nil { // a frame of no known type may end the connection
					link, err = p.Link(w.t.Context(), w.hosts[host].addr, path)
					w.ok(err)
					id, err = link.Open(s)
					w.ok(err)
				}
				w.ok(link.Conn.Send(w.t.Context(), wire.AppendFrame(nil, frame, id, []byte("garbage"))))
				sleep(100 * time.Millisecond)
				link.Forget(id)
			}
		}
		w.publish("a")
		w.ok(w.next(con, "a", 1).Ack())
		w.close(con)
	})
}
