package storehost

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog"
	"github.com/columbamq/columba/storehost/extentlog/extentlogtest"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

// patience bounds every wait of a test.
const patience = 20 * time.Second

// testStore is a store host behind a real server.
type testStore struct {
	t      testing.TB
	dir    string
	self   core.HostID
	open   func(dir string, o extentlog.Options) (extentlog.Log, error) // nil: on the disk
	now    func() time.Time                                             // nil: the system's clock
	log    *slog.Logger                                                 // nil: none
	rows   *rows                                                        // what controllers say
	host   *Host
	server *httptest.Server
	rpc    columbav1connect.StoreServiceClient
}

func startStore(t testing.TB, self core.HostID) *testStore {
	t.Helper()
	s := &testStore{t: t, dir: filepath.Join(t.TempDir(), "store"), self: self}
	s.start()
	t.Cleanup(func() { s.stop() })
	return s
}

func (s *testStore) start() {
	s.t.Helper()
	cfg := DefaultConfig()
	cfg.Dir = s.dir
	log := s.log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if s.rows == nil {
		s.rows = &rows{}
	}
	host, err := New(cfg, Deps{
		Log: log, Metrics: prometheus.NewRegistry(), Self: s.self, Run: core.RunID{ID: core.NewID(time.Now())}, Open: s.open, Now: s.now, Confirm: s.rows,
	})
	must(s.t, err)
	must(s.t, host.Start(s.t.Context()))
	mux := http.NewServeMux()
	host.Routes(mux)
	s.host, s.server = host, httptest.NewServer(mux)
	s.rpc = columbav1connect.NewStoreServiceClient(http.DefaultClient, s.server.URL)
}

func (s *testStore) stop() {
	if s.host != nil {
		must(s.t, s.host.Stop(context.Background()))
		s.server.Close()
		s.host = nil
	}
}

func (s *testStore) restart() {
	s.t.Helper()
	s.stop()
	s.start()
}

// extent makes a tuple with the given stores as replicas.
func extent(stores ...core.HostID) core.Extent {
	e := extentlogtest.Extent()
	e.Replicas = stores
	return e
}

func (s *testStore) fence(e core.Extent, disk core.DiskID) core.FenceAnswer {
	s.t.Helper()
	expected := convert.IdentityToProto(core.StoreIdentity{Store: s.self, Disk: disk})
	resp, err := s.rpc.Fence(s.t.Context(), connect.NewRequest(&pb.FenceRequest{Extent: convert.ExtentToProto(e), Expected: expected}))
	must(s.t, err)
	a, err := convert.FenceAnswer(resp.Msg)
	must(s.t, err)
	return a
}

func (s *testStore) seal(e core.Extent, l core.Seq, checksum uint32) error {
	_, err := s.rpc.Seal(s.t.Context(), connect.NewRequest(&pb.SealReplicaRequest{Extent: convert.ExtentToProto(e), L: uint64(l), Checksum: checksum}))
	return convert.FromRPC(err)
}

// link is a peer's connection to a store.
type link struct {
	t    testing.TB
	mux  *ws.Mux
	done chan error
}

func (s *testStore) dial() *link {
	s.t.Helper()
	conn, err := ws.Dial(s.t.Context(), strings.TrimPrefix(s.server.URL, "http://"), "/v1/store", ws.Options{})
	must(s.t, err)
	l := &link{t: s.t, mux: ws.NewMux(conn, nil), done: make(chan error, 1)}
	go func() { l.done <- l.mux.Run(context.Background()) }()
	s.t.Cleanup(l.drop)
	return l
}

// drop breaks the connection.
func (l *link) drop() {
	l.mux.Conn.Abort(nil)
	select {
	case err := <-l.done:
		l.done <- err
	case <-time.After(patience):
		l.t.Error("the connection does not end")
	}
}

// stream collects the frames of one stream.
type stream struct {
	l      *link
	id     uint32
	frames chan wire.Frame
}

func (l *link) stream() *stream {
	l.t.Helper()
	s := &stream{l: l, frames: make(chan wire.Frame, 10_000)}
	var err error
	s.id, err = l.mux.Open(s)
	must(l.t, err)
	return s
}

func (s *stream) HandleFrame(f wire.Frame, _ *ws.Message) {
	f.Body = append([]byte(nil), f.Body...)
	s.frames <- f
}

func (s *stream) Closed(error) { close(s.frames) }

func (s *stream) send(t wire.FrameType, body []byte) {
	s.l.t.Helper()
	must(s.l.t, s.l.mux.Conn.Send(s.l.t.Context(), wire.AppendFrame(nil, t, s.id, body)))
}

func (s *stream) sendProto(t wire.FrameType, m proto.Message) {
	s.l.t.Helper()
	body, err := proto.Marshal(m)
	must(s.l.t, err)
	s.send(t, body)
}

func (s *stream) sendPosition(t wire.FrameType, v uint64) {
	s.l.t.Helper()
	s.send(t, wire.AppendPosition(nil, v))
}

func (s *stream) receive() wire.Frame {
	s.l.t.Helper()
	select {
	case f, ok := <-s.frames:
		if !ok {
			s.l.t.Fatal("the connection ended")
		}
		return f
	case <-time.After(patience):
		s.l.t.Fatal("no frame came")
	}
	return wire.Frame{}
}

// expect takes the next frame, of type t, with that number.
func (s *stream) expect(t wire.FrameType, want uint64) {
	s.l.t.Helper()
	f := s.receive()
	if f.Type != t {
		s.l.t.Fatalf("got frame %d %v, want %d", f.Type, describe(f), t)
	}
	if got, err := wire.DecodePosition(f.Body); err != nil || got != want {
		s.l.t.Fatalf("frame %d says %d, %v; want %d", t, got, err, want)
	}
}

func (s *stream) expectRefused(code core.Code) {
	s.l.t.Helper()
	f := s.receive()
	if err := convert.FrameError(f.Body); f.Type != wire.TypeRefused || core.CodeOf(err) != code {
		s.l.t.Fatalf("got frame %d %v, want refused with %q", f.Type, describe(f), code)
	}
}

func describe(f wire.Frame) string {
	if f.Type == wire.TypeRefused {
		return fmt.Sprint(convert.FrameError(f.Body))
	}
	return fmt.Sprintf("of %d bytes", len(f.Body))
}

// openAppend opens and waits for the answer.
func (l *link) openAppend(e core.Extent) *stream {
	l.t.Helper()
	s := l.stream()
	s.sendProto(wire.TypeOpenAppend, &pb.OpenAppend{Extent: convert.ExtentToProto(e)})
	if f := s.receive(); f.Type != wire.TypeOpened {
		l.t.Fatalf("got frame %d %v, want opened", f.Type, describe(f))
	}
	return s
}

func (s *stream) append(batch []byte, committed core.Seq) {
	s.l.t.Helper()
	frame := wire.AppendAppendHead(nil, s.id, committed, len(batch))
	must(s.l.t, s.l.mux.Conn.Send(s.l.t.Context(), append(frame, batch...)))
}

// awaitAck takes acks until seq is durable.
func (s *stream) awaitAck(seq core.Seq) {
	s.l.t.Helper()
	for last := core.Seq(0); last < seq; {
		v := s.ack()
		if v <= last {
			s.l.t.Fatalf("ack %d after %d", v, last)
		}
		last = v
	}
}

func (l *link) openRead(e core.Extent, from core.Seq, credit int) *stream {
	l.t.Helper()
	s := l.stream()
	s.sendProto(wire.TypeOpenRead, &pb.OpenRead{Extent: convert.ExtentToProto(e), From: uint64(from), Credit: uint64(credit)})
	return s
}

// readTo takes batches until seq, and answers how many bytes that were.
func (s *stream) readTo(from, seq core.Seq) (bytes int) {
	s.l.t.Helper()
	for next := from; next <= seq; {
		f := s.receive()
		if f.Type == wire.TypeReadCommitted {
			continue
		}
		if f.Type != wire.TypeBatches {
			s.l.t.Fatalf("at %d: got frame %d %v, want batches", next, f.Type, describe(f))
		}
		bytes += len(f.Body)
		for rest := f.Body; len(rest) > 0; {
			b, r, err := wire.NextBatch(rest)
			must(s.l.t, err)
			if b.Base > next || b.Last() < next || b.Last() > seq {
				s.l.t.Fatalf("got batch %d…%d, want the one with %d, none beyond %d", b.Base, b.Last(), next, seq)
			}
			next, rest = b.Last()+1, r
		}
	}
	return bytes
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t testing.TB, err error, code core.Code) {
	t.Helper()
	if core.CodeOf(err) != code {
		t.Fatalf("got %v (%q), want %q", err, core.CodeOf(err), code)
	}
}

func unixMicro(us int64) time.Time { return time.UnixMicro(us) }

func TestHost_Lifecycle(t *testing.T) {
	cfg := DefaultConfig()
	deps := Deps{Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Self: "s1"}
	if _, err := New(cfg, deps); core.CodeOf(err) != core.CodeBadArgument {
		t.Fatalf("without a directory: %v, want %q", err, core.CodeBadArgument)
	}
	cfg.Dir = filepath.Join(t.TempDir(), "missing", "store")
	h, err := New(cfg, deps)
	must(t, err)
	wantCode(t, h.Start(t.Context()), core.CodeNotFound)
	must(t, h.Stop(t.Context()))

	s := startStore(t, "s1")
	l := s.dial()
	l.openAppend(extent("s1"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	must(t, s.host.Run(ctx))
	a := l.stream()
	a.sendProto(wire.TypeOpenAppend, &pb.OpenAppend{Extent: convert.ExtentToProto(extent("s1"))})
	a.expectRefused(core.CodeDraining)
	host := s.host
	s.stop()
	must(t, host.Stop(context.Background()))
	<-l.done
	l.done <- nil
}

func openedOf(t testing.TB, f wire.Frame) *pb.Opened {
	t.Helper()
	if f.Type != wire.TypeOpened {
		t.Fatalf("got frame %d %v, want opened", f.Type, describe(f))
	}
	var o pb.Opened
	must(t, proto.Unmarshal(f.Body, &o))
	return &o
}
