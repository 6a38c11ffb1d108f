package cluster

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
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

// TestCluster_FloodOfBadAcksHurtsItsStreamOnly acks what was never delivered. As many refused settlements as a stream
// may have are listed; one more ends the stream, and so does a frame that names more than a frame may settle.
func TestCluster_FloodOfBadAcksHurtsItsStreamOnly(t *testing.T) {
	bubble(t, Options{}, func(w *world) {
		w.group("g", nil)
		p := w.peers()
		defer p.Close()
		link, err := p.Link(w.t.Context(), w.hosts[Output].addr, "/v1/consume")
		w.ok(err)
		hello, err := proto.Marshal(&pb.ConsumeHello{Queue: queue, Group: "g", Client: "bad"})
		w.ok(err)
		open := func() (s *rawStream, ack func(runs ...wire.SeqRun)) {
			s = &rawStream{}
			id, err := link.Open(s)
			w.ok(err)
			w.ok(link.Conn.Send(w.t.Context(), wire.AppendFrame(nil, wire.TypeConsumeHello, id, hello)))
			w.eventually("the stream is open", 5*time.Second, func() bool { return s.last() == wire.TypeConsumeHelloOK })
			return s, func(runs ...wire.SeqRun) {
				bad := wire.Settled{Handle: 7, Runs: runs}
				w.ok(link.Conn.Send(w.t.Context(), wire.AppendFrame(nil, wire.TypeAck, id, bad.Append(nil))))
			}
		}
		const refused = 1000
		s, ack := open()
		ack(wire.SeqRun{Base: 1, Count: refused, Attempt: 1})
		w.eventually("all refusals", 5*time.Second, func() bool { return s.failures() == refused })
		ack(wire.SeqRun{Base: 1, Count: 1, Attempt: 1})
		w.eventually("the end of the stream", 5*time.Second, func() bool { return s.last() == wire.TypeError })

		var runs []wire.SeqRun
		for i := range 50_000 {
			runs = append(runs, wire.SeqRun{Base: core.Seq(i*100_000 + 1), Count: 65_535, Attempt: 1})
		}
		s, ack = open()
		ack(runs...)
		w.eventually("the end of the second stream", 5*time.Second, func() bool { return s.last() == wire.TypeError })
		if n := s.failures(); n != 0 {
			t.Errorf("%d refusals of a frame that is too large are listed", n)
		}
		// The group still works.
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

// hellos is a connection that opens streams and counts the answers.
type hellos struct {
	conn            *ws.Conn
	opened, refused atomic.Int64
	unexpected      atomic.Bool
}

func (h *hellos) message(m *ws.Message) error {
	for rest := m.Bytes; len(rest) > 0; {
		f, r, err := wire.NextFrame(rest)
		if err != nil {
			return err
		}
		rest = r
		switch {
		case f.Type == wire.TypeConsumeHelloOK:
			h.opened.Add(1)
		case f.Type == wire.TypeError && core.CodeOf(convert.FrameError(f.Body)) == core.CodeThrottled:
			h.refused.Add(1)
		default:
			h.unexpected.Store(true)
		}
	}
	return nil
}

func (h *hellos) answered() int { return int(h.opened.Load() + h.refused.Load()) }

// TestFlood_HellosLeaveRoomForOthers opens 100,000 streams on one connection, then as many on many connections: the
// memory is bounded, those beyond the limits are told so, and consumers of the same group get their messages meanwhile.
func TestFlood_HellosLeaveRoomForOthers(t *testing.T) {
	const flood = 100_000
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	lonelyBubble(t, Options{}, core.QueueSpec{Path: queue}, func(w *world) {
		w.group("g", nil)
		w.group("h", nil)
		p := w.peers()
		defer p.Close()
		con := w.consumer("h")
		hello, err := proto.Marshal(&pb.ConsumeHello{Queue: queue, Group: "g", Client: "greedy"})
		w.ok(err)
		ctx, cancel := context.WithCancel(w.t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		connect := func() *hellos {
			conn, err := ws.Dial(ctx, w.hosts[Output].addr, "/v1/consume", ws.Options{NetDial: p.Dial})
			w.ok(err)
			h := &hellos{conn: conn}
			wg.Go(func() { conn.Run(ctx, h.message) })
			return h
		}
		// meet publishes a message and gets it, in the midst of the flood.
		meet := func(text string) {
			w.publish(text)
			w.ok(w.next(con, text, 1).Ack())
		}
		one := connect()
		for i := range flood {
			w.ok(one.conn.Send(ctx, wire.AppendFrame(nil, wire.TypeConsumeHello, uint32(i+1), hello)))
			if i == flood/2 {
				meet("during")
			}
		}
		w.eventually("all answers", time.Minute, func() bool { return one.answered() == flood })
		meet("after")
		if got := one.opened.Load(); got != 10_000 {
			t.Errorf("%d of %d streams were opened on one connection, want its limit of 10,000", got, flood)
		}
		var more []*hellos
		for i := range 20 {
			h := connect()
			more = append(more, h)
			group := fmt.Sprintf("g%d", i) // of its own: each stream that joins a group looks at all of it
			w.group(group, nil)
			hello, err := proto.Marshal(&pb.ConsumeHello{Queue: queue, Group: group, Client: "greedy"})
			w.ok(err)
			for i := range flood / 20 {
				w.ok(h.conn.Send(ctx, wire.AppendFrame(nil, wire.TypeConsumeHello, uint32(i+1), hello)))
			}
		}
		opened := int(one.opened.Load())
		for _, h := range more {
			w.eventually("all answers", time.Minute, func() bool { return h.answered() == flood/20 })
			opened += int(h.opened.Load())
			if h.unexpected.Load() {
				t.Error("a stream was answered with something else than its opening or a refusal that is throttled")
			}
		}
		if opened > 50_000 {
			t.Errorf("%d streams of one address are open, want at most half of 100,000", opened)
		}
		meet("last")
		late := w.consumer("h")
		w.close(late)
		w.close(con)
		var during runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&during)
		used := (int64(during.HeapAlloc) - int64(before.HeapAlloc)) >> 20
		t.Logf("%d streams take %d MiB", opened, used)
		if used > 256 {
			t.Errorf("%d streams take %d MiB, want at most 256", opened, used)
		}
	})
}
