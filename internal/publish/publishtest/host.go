// Package publishtest owns a scripted input host for tests, which answers publishers over real websockets.
package publishtest

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// Host is a fake input host. Set its fields before the first publisher comes.
type Host struct {
	// OnBatch answers a batch, on the reader goroutine of its connection. Default: Ack.
	OnBatch func(b *Batch)
	// OnHello refuses a stream by an error.
	OnHello func(h *pb.PublishHello) error
	Limits  *pb.PublishHelloOK // default: 1 MiB messages, 1 MiB batches, 4 MiB window
	Extent  core.ExtentID
	// Unchecked counts records without verifying them, for benchmarks.
	Unchecked bool

	addr string
	wg   sync.WaitGroup
	mu   struct {
		sync.Mutex
		conns  []*ws.Conn
		hellos int
		stored []string
		seq    core.Seq
	}
}

// Start serves the host on a loopback listener until the test ends.
func Start(t testing.TB, h *Host) *Host {
	t.Helper()
	mux := http.NewServeMux()
	h.Handle(mux)
	srv := httptest.NewServer(mux)
	h.addr = srv.Listener.Addr().String()
	t.Cleanup(func() {
		h.Cut()
		srv.Close()
		h.wg.Wait()
	})
	return h
}

// Addr is where the host listens.
func (h *Host) Addr() string { return h.addr }

// Handle serves /v1/publish on another server's mux. The caller ends the connections with Cut.
func (h *Host) Handle(mux *http.ServeMux) {
	if h.Extent.IsZero() {
		h.Extent = core.ExtentID{ID: core.NewID(time.Now())}
	}
	if h.Limits == nil {
		h.Limits = &pb.PublishHelloOK{MaxMessage: 1 << 20, MaxBatch: 1 << 20, Window: 4 << 20}
	}
	mux.HandleFunc("/v1/publish", func(w http.ResponseWriter, r *http.Request) {
		h.wg.Add(1) // before the connection is the websocket's: until then the server waits for it
		defer h.wg.Done()
		conn, err := ws.Upgrade(w, r, ws.Options{})
		if err != nil {
			return
		}
		h.mu.Lock()
		h.mu.conns = append(h.mu.conns, conn)
		h.mu.Unlock()
		m := ws.NewMux(conn, func(f wire.Frame, _ *ws.Message) ws.StreamHandler {
			if f.Type != wire.TypePublishHello {
				return nil
			}
			return &stream{host: h, conn: conn, number: f.Stream}
		})
		m.Run(context.Background())
	})
}

// Cut ends every connection without a word.
func (h *Host) Cut() {
	h.mu.Lock()
	conns := h.mu.conns
	h.mu.conns = nil
	h.mu.Unlock()
	for _, c := range conns {
		c.Abort(net.ErrClosed)
	}
}

// Stored is the payloads that were stored, in their order.
func (h *Host) Stored() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.mu.stored...)
}

// Hellos is how many streams were opened.
func (h *Host) Hellos() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.hellos
}

type stream struct {
	host   *Host
	conn   *ws.Conn
	number uint32
	next   uint64
}

func (s *stream) Closed(error) {}

func (s *stream) HandleFrame(f wire.Frame, _ *ws.Message) {
	switch f.Type {
	case wire.TypePublishHello:
		var hello pb.PublishHello
		if err := proto.Unmarshal(f.Body, &hello); err != nil {
			panic(err)
		}
		s.host.mu.Lock()
		s.host.mu.hellos++
		s.host.mu.Unlock()
		s.next = 1
		if s.host.OnHello != nil {
			if err := s.host.OnHello(&hello); err != nil {
				s.send(wire.TypeError, convert.ErrorToProto(err))
				return
			}
		}
		s.send(wire.TypePublishHelloOK, s.host.Limits)
	case wire.TypePublish:
		var p wire.Publish
		if err := p.Decode(f.Body); err != nil {
			panic(err)
		}
		n, err := s.host.count(p.Records)
		if err != nil || p.First != s.next {
			panic(err)
		}
		s.next += uint64(n)
		b := &Batch{First: p.First, Count: n, Records: p.Records, s: s}
		if s.host.OnBatch != nil {
			s.host.OnBatch(b)
			return
		}
		b.Ack()
	}
}

func (h *Host) count(records []byte) (n int, err error) {
	if !h.Unchecked {
		return wire.CheckRecords(records, wire.MaxPayload)
	}
	for ; len(records) > 0 && err == nil; n++ {
		_, records, err = wire.NextRecord(records)
	}
	return n, err
}

func (s *stream) send(t wire.FrameType, m proto.Message) {
	body, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	s.conn.Post(wire.AppendFrame(nil, t, s.number, body))
}

// Batch is one Publish frame to answer. Records is valid until OnBatch returns; the rest may be used later.
type Batch struct {
	First   uint64
	Count   int
	Records []byte
	s       *stream
}

// Payloads copies the payloads.
func (b *Batch) Payloads() []string {
	var out []string
	for rest := b.Records; len(rest) > 0; {
		record, r, err := wire.NextRecord(rest)
		if err != nil {
			panic(err)
		}
		out, rest = append(out, string(wire.PayloadOf(record))), r
	}
	return out
}

// Store keeps the payloads, without an answer, and returns the first seq.
func (b *Batch) Store() core.Seq {
	payloads := b.Payloads()
	h := b.s.host
	h.mu.Lock()
	defer h.mu.Unlock()
	base := h.mu.seq + 1
	h.mu.seq += core.Seq(b.Count)
	h.mu.stored = append(h.mu.stored, payloads...)
	return base
}

// Ack stores and acknowledges the batch.
func (b *Batch) Ack() { b.AckAt(b.Store()) }

// AckAt acknowledges the batch from a seq.
func (b *Batch) AckAt(base core.Seq) {
	b.Answer(wire.AckRun{First: b.First, Count: uint32(b.Count), Extent: b.s.host.Extent, Base: base})
}

// Refuse says that the batch was not stored.
func (b *Batch) Refuse(code core.Code) {
	b.Answer(wire.AckRun{First: b.First, Count: uint32(b.Count), Status: wire.AckRefused, Code: code})
}

// Answer sends any runs.
func (b *Batch) Answer(runs ...wire.AckRun) {
	ack := wire.PublishAck{Runs: runs}
	b.s.conn.Post(wire.AppendFrame(nil, wire.TypePublishAck, b.s.number, ack.Append(nil)))
}

// Throttle asks the stream for a pause.
func (b *Batch) Throttle(d time.Duration) {
	b.s.send(wire.TypeThrottled, &pb.Throttled{RetryAfter: durationpb.New(d)})
}

// Explain says why runs of the stream are refused with the error's code.
func (b *Batch) Explain(err error) {
	b.s.send(wire.TypeThrottled, &pb.Throttled{Reason: convert.ErrorToProto(err)})
}

// Reconfigure sends the stream a complete list of hosts, by id and address.
func (b *Batch) Reconfigure(version uint64, hosts ...*pb.HostAddress) {
	b.s.send(wire.TypeReconfigure, &pb.Reconfigure{Version: version, Hosts: hosts})
}

// Drain says to all streams of the connection that the host goes away.
func (b *Batch) Drain() {
	b.s.conn.Post(wire.AppendFrame(nil, wire.TypeDrain, 0, nil))
}

// Fail closes the stream with an error.
func (b *Batch) Fail(err error) { b.s.send(wire.TypeError, convert.ErrorToProto(err)) }

// Cut ends the connection without a word.
func (b *Batch) Cut() { b.s.conn.Abort(net.ErrClosed) }
