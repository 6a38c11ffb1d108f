package integration

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

var endpoints = []string{"/v1/publish", "/v1/consume", "/v1/store"}

// link is a raw connection to the server's data plane.
type link struct {
	conn   *ws.Conn
	frames chan wire.Frame
	ended  chan error
}

// raw dials an endpoint; the link is joined when the test ends.
func (w *world) raw(path string) *link {
	w.t.Helper()
	conn, err := ws.Dial(w.t.Context(), w.server.Addr, path, ws.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	l := &link{conn: conn, frames: make(chan wire.Frame, 1000), ended: make(chan error, 1)}
	go func() {
		err := conn.Run(context.Background(), func(m *ws.Message) error {
			for rest := m.Bytes; len(rest) > 0; {
				f, next, err := wire.NextFrame(rest)
				if err != nil {
					return err
				}
				f.Body = append([]byte(nil), f.Body...)
				select {
				case l.frames <- f:
				default: // a test looks at the first ones
				}
				rest = next
			}
			return nil
		})
		close(l.frames)
		l.ended <- err
	}()
	w.t.Cleanup(l.close)
	return l
}

func (l *link) close() {
	l.conn.Abort(nil)
	for range l.frames {
	}
}

// refused waits for an error frame, or for the end of the connection, and returns the code that one or the other names.
func (w *world) refused(l *link, what string) core.Code {
	w.t.Helper()
	return w.answer(l, what, func(wire.Frame) (core.Code, bool) { return "", false })
}

// answer is refused, and also ends with a frame of which code says that it is the answer.
func (w *world) answer(l *link, what string, code func(wire.Frame) (core.Code, bool)) core.Code {
	w.t.Helper()
	limit := time.After(20 * time.Second)
	for {
		select {
		case f, ok := <-l.frames:
			if !ok {
				err := <-l.ended
				if err == nil {
					return ""
				}
				return core.Code(err.Error()[strings.LastIndex(err.Error(), " ")+1:])
			}
			if f.Type == wire.TypeError || f.Type == wire.TypeRefused {
				var e pb.Error
				if err := proto.Unmarshal(f.Body, &e); err != nil {
					w.t.Fatalf("%s: the error does not parse: %v", what, err)
				}
				return core.CodeOf(convert.ErrorFromProto(&e))
			}
			if c, ok := code(f); ok {
				return c
			}
		case <-limit:
			w.t.Fatalf("%s: neither an error nor an end", what)
		}
	}
}

// works checks that the server still does its work.
func (w *world) works() {
	w.t.Helper()
	w.server.Alive()
	w.group("works", func(g *core.GroupSpec) { g.Start.Mode = core.StartLatest })
	w.publish("still here")
	w.settle(w.next(w.consumer("works"), "still here", 1).Ack())
	for _, word := range []string{"panic", "DATA RACE", "goroutine "} {
		if strings.Contains(w.server.Log(), word) {
			w.t.Errorf("the server's log has %q", word)
		}
	}
}

func marshal(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBadFramesAreRefused(t *testing.T) {
	w := newWorld(t)
	future := wire.AppendFrame(nil, wire.TypePublishHello, 1, nil)
	future[1] = wire.FrameVersion + 1
	flagged := wire.AppendFrame(nil, wire.TypePublishHello, 1, nil)
	flagged[3] = 0x80
	long := wire.AppendFrame(nil, wire.TypePublishHello, 1, nil)
	long[11] = 0x7f
	for name, c := range map[string]struct {
		message []byte
		code    core.Code
		late    bool // a store takes it for a frame of a stream that has ended
	}{
		"short":            {[]byte{1, 1, 0}, core.CodeBadFrame, false},
		"text":             {[]byte("GET / HTTP/1.1\r\n\r\n"), "", false},
		"zeros":            {make([]byte, 1000), core.CodeBadFrame, false},
		"future version":   {future, core.CodeVersion, false},
		"future flags":     {flagged, core.CodeVersion, false},
		"too long a frame": {long, core.CodeBadFrame, false},
		"unknown type":     {wire.AppendFrame(nil, 200, 1, nil), core.CodeBadFrame, true},
		"hello of garbage": {wire.AppendFrame(nil, wire.TypePublishHello, 1, []byte{0xff, 0xff, 0xff}), core.CodeBadFrame, true},
		"no hello":         {wire.AppendFrame(nil, wire.TypePublish, 1, []byte("x")), core.CodeBadFrame, true},
		"no open":          {wire.AppendFrame(nil, wire.TypeAppend, 1, make([]byte, 100)), core.CodeBadFrame, true},
	} {
		for _, path := range endpoints {
			if path == "/v1/store" && c.late || path == "/v1/consume" && name == "no hello" {
				continue // frames of streams that have just ended are let be
			}
			l := w.raw(path)
			if err := l.conn.Send(t.Context(), c.message); err != nil {
				t.Fatal(err)
			}
			if code := w.refused(l, name+" on "+path); code != c.code && !(c.code == "" && code != "") {
				t.Errorf("%s on %s: refused with %q, want %q", name, path, code, c.code)
			}
			l.close()
		}
	}
	w.works()
}

// TestMutatedFramesAreRefused publishes batches of which a byte was changed, or the end cut off, beside a good
// publisher. Nothing of them is stored, unless what was changed says so itself: the record's checksum covers every
// byte.
func TestMutatedFramesAreRefused(t *testing.T) {
	const rounds = 300
	w := newWorld(t)
	w.group("g", nil)
	r := rand.New(rand.NewPCG(1, 2))
	record, err := wire.AppendRecord(nil, &wire.Record{ID: core.MessageID{ID: core.NewID(time.Now())}, Payload: []byte("mutated payload")})
	if err != nil {
		t.Fatal(err)
	}
	hello := wire.AppendFrame(nil, wire.TypePublishHello, 1, marshal(t, &pb.PublishHello{Queue: queue, Client: "mutant"}))
	publish := &wire.Publish{First: 1, Records: record}
	good := wire.AppendFrame(nil, wire.TypePublish, 1, publish.Append(nil))
	bodyStart := wire.FrameHeaderLen + len(publish.Append(nil)) - len(record)
	for range rounds {
		bad := append([]byte(nil), good...)
		switch i := r.IntN(len(bad) + len(bad)/4); {
		case i >= len(bad):
			bad = bad[:r.IntN(len(bad)-1)+1]
		case i >= bodyStart || i < wire.FrameHeaderLen && i != 4: // not the stream nor the number of the record: they may be any
			bad[i] ^= byte(1 + r.IntN(255))
		default:
			continue
		}
		l := w.raw("/v1/publish")
		if err := l.conn.Send(t.Context(), hello); err != nil {
			t.Fatal(err)
		}
		if f, ok := <-l.frames; !ok || f.Type != wire.TypePublishHelloOK {
			t.Fatalf("hello was answered by %v", f)
		}
		if err := l.conn.Send(t.Context(), bad); err != nil {
			t.Fatal(err)
		}
		w.answered(l)
		l.close()
	}
	w.publish("good")
	con := w.consumer("g")
	w.settle(w.next(con, "good", 1).Ack())
	w.works()
}

// answered waits until a mutated publish was refused in one of the ways there are: an error, a negative ack, the end.
func (w *world) answered(l *link) {
	w.t.Helper()
	select {
	case f, ok := <-l.frames:
		if !ok || f.Type == wire.TypeError {
			return
		}
		var ack wire.PublishAck
		if f.Type != wire.TypePublishAck || ack.Decode(f.Body) != nil {
			w.t.Fatalf("a mutated publish was answered by frame %d", f.Type)
		}
		for _, run := range ack.Runs {
			if run.Status == wire.AckOK {
				w.t.Errorf("a mutated publish was acknowledged")
			}
		}
	case <-time.After(20 * time.Second):
		w.t.Fatal("a mutated publish was not answered")
	}
}

// TestGarbageOnWebsockets sends random bytes, and frames whose bodies are random, to every endpoint.
func TestGarbageOnWebsockets(t *testing.T) {
	const rounds = 150
	w := newWorld(t)
	w.group("g", nil)
	r := rand.New(rand.NewPCG(3, 4))
	types := []wire.FrameType{
		1, 2, 3, 10, 11, 12, 13, 14, 15, 20, 21, 22, 23, 24, 25, 26, 30, 31, 32, 33, 34, 35, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 99,
	}
	hellos := map[string][]byte{
		"/v1/publish": wire.AppendFrame(nil, wire.TypePublishHello, 1, marshal(t, &pb.PublishHello{Queue: queue})),
		"/v1/consume": wire.AppendFrame(nil, wire.TypeConsumeHello, 1, marshal(t, &pb.ConsumeHello{Queue: queue, Group: "g"})),
		"/v1/store":   nil,
	}
	for i := range rounds {
		for _, path := range endpoints {
			l := w.raw(path)
			var message []byte
			if i%2 == 0 {
				message = append(message, hellos[path]...)
			}
			for range r.IntN(5) {
				body := make([]byte, r.IntN(200))
				for j := range body {
					body[j] = byte(r.Uint32())
				}
				if r.IntN(4) == 0 {
					message = append(message, body...)
				} else {
					message = wire.AppendFrame(message, types[r.IntN(len(types))], uint32(r.IntN(3)), body)
				}
			}
			if len(message) > 0 {
				if err := l.conn.Send(t.Context(), message); err != nil && !errors.Is(err, core.ErrUnavailable) {
					t.Fatal(err)
				}
			}
			if i%10 == 0 { // let the server read it; else it is cut off while it does
				_ = l.conn.Close()
			}
			l.close()
		}
	}
	w.works()
}

func TestPlainRequestsToWebsockets(t *testing.T) {
	w := newWorld(t)
	for _, path := range endpoints {
		res, err := http.Get("http://" + w.server.Addr + path)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode < 400 || res.StatusCode >= 500 {
			t.Errorf("GET %s: %s, want a refusal", path, res.Status)
		}
	}
	w.works()
}
