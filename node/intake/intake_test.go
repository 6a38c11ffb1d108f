package intake

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/netmem"
)

const publish = "/columba.v1.MessageService/Publish"

// servedIn runs an intake before a page that answers with the length of its body, on a network in memory, in a synctest
// bubble.
func servedIn(t *testing.T, in *Intake) func(ctx context.Context, req *http.Request) (*http.Response, error) {
	t.Helper()
	l := netmem.Listen("server")
	page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%d %v %s", len(b), err, r.Header.Get("Content-Encoding"))
	})
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in.Serve(w, r, "client", r.RemoteAddr, page)
	}), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	go s.Serve(l)
	client := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.Dial(ctx) }, DisableKeepAlives: true, DisableCompression: true}
	t.Cleanup(func() { s.Close(); client.CloseIdleConnections() })
	return func(ctx context.Context, req *http.Request) (*http.Response, error) {
		return client.RoundTrip(req.WithContext(ctx))
	}
}

func post(t *testing.T, path, kind string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, "http://server"+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", kind)
	return req
}

func answerOf(t *testing.T, res *http.Response, err error) (status int, text string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func zip(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// envelope is a message as gRPC sends it.
func envelope(packed byte, b []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{packed}, uint32(len(b))), b...)
}

// message is a publish of a payload of n bytes.
func message(t *testing.T, n int) []byte {
	t.Helper()
	b, err := proto.Marshal(&pb.PublishRequest{Queue: "/t/a", Messages: []*pb.Message{{Payload: make([]byte, n)}}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func newIntake() *Intake { return New(slog.New(slog.DiscardHandler), prometheus.NewRegistry()) }

func TestBodiesComeWholeAndUnpacked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newIntake()
		call := servedIn(t, in)
		for _, n := range []int{0, 1, firstBuffer, SmallBody - 100, SmallBody, SmallBody + 1, 3 << 20} {
			plain := message(t, n)
			for name, c := range map[string]struct {
				kind, packed, grpc string
				body               []byte
				want               int
			}{
				"plain":       {kind: "application/proto", body: plain, want: len(plain)},
				"gzip":        {kind: "application/proto", packed: "gzip", body: zip(t, plain), want: len(plain)},
				"grpc":        {kind: "application/grpc", body: envelope(0, plain), want: len(plain) + 5},
				"grpc gzip":   {kind: "application/grpc+proto", grpc: "gzip", body: envelope(1, zip(t, plain)), want: len(plain) + 5},
				"grpc stream": {kind: "application/connect+proto", body: envelope(0, plain), want: len(plain) + 5},
			} {
				for _, chunked := range []bool{false, true} {
					body := io.Reader(bytes.NewReader(c.body))
					if chunked {
						body = io.MultiReader(body)
					}
					req := post(t, publish, c.kind, body)
					if c.packed != "" {
						req.Header.Set("Content-Encoding", c.packed)
					}
					req.Header.Set("Grpc-Encoding", c.grpc)
					res, err := call(t.Context(), req)
					status, text := answerOf(t, res, err)
					if want := fmt.Sprintf("%d <nil> ", c.want); status != http.StatusOK || text != want {
						t.Errorf("%s of %d bytes, chunked %t: %d %q, want %q", name, n, chunked, status, text, want)
					}
				}
			}
		}
		if n := in.public.Held(); n != 0 {
			t.Errorf("%d bytes are held after all calls", n)
		}
	})
}

func TestBodiesThatAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newIntake()
		in.public = NewBudget(Limits{Body: 1 << 20, Small: 1 << 20, Large: 3 << 20, Waiting: 1, Wait: time.Second}, time.Now)
		call := servedIn(t, in)
		most := int(in.public.limits.Body)
		manyEmpty := bytes.Repeat([]byte{0x12, 0}, most/4) // messages of two bytes: each takes a hundred times as many
		for name, c := range map[string]struct {
			kind, packed string
			body         []byte
			status       int
			code         core.Code
		}{
			"one byte too many":          {"application/proto", "", make([]byte, most+1), 413, core.CodeTooLarge},
			"a bomb":                     {"application/proto", "gzip", zip(t, make([]byte, 4*most)), 413, core.CodeTooLarge},
			"many empty messages":        {"application/proto", "", manyEmpty, 413, core.CodeTooLarge},
			"many unknown fields":        {"application/proto", "", bytes.Repeat([]byte{0x7a, 0}, most/4), 413, core.CodeTooLarge},
			"many empty messages in zip": {"application/proto", "gzip", zip(t, manyEmpty), 413, core.CodeTooLarge},
			"many empty objects":         {"application/json", "", []byte(`{"messages":[` + strings.Repeat("{},", most/8) + `{}]}`), 413, core.CodeTooLarge},
			"no gzip":                    {"application/proto", "gzip", []byte("text"), 400, core.CodeBadArgument},
			"half a gzip":                {"application/proto", "gzip", zip(t, message(t, 9999))[:20], 400, core.CodeBadArgument},
			"another packing":            {"application/proto", "br", []byte("text"), 415, core.CodeUnsupported},
		} {
			for _, chunked := range []bool{false, true} {
				body := io.Reader(bytes.NewReader(c.body))
				if chunked {
					body = io.MultiReader(body)
				}
				req := post(t, publish, c.kind, body)
				if c.packed != "" {
					req.Header.Set("Content-Encoding", c.packed)
				}
				res, err := call(t.Context(), req)
				status, text := answerOf(t, res, err)
				if status != c.status || !strings.Contains(text, `"`+string(c.code)+`"`) {
					t.Errorf("%s, chunked %t: %d %s, want %d %s", name, chunked, status, text, c.status, c.code)
				}
			}
		}
		for name, body := range map[string][]byte{"short": envelope(0, message(t, 10))[:9], "two messages": append(envelope(0, nil), envelope(0, nil)...), "said too large": {0, 0xff, 0xff, 0xff, 0xff}} {
			res, err := call(t.Context(), post(t, publish, "application/grpc", bytes.NewReader(body)))
			status, _ := answerOf(t, res, err)
			if got := res.Header.Get("Grpc-Status") + res.Trailer.Get("Grpc-Status"); status != http.StatusOK || got == "0" || got == "" {
				t.Errorf("gRPC, %s: status %d, grpc-status %q, want an error", name, status, got)
			}
		}
		if n := in.public.Held(); n != 0 {
			t.Errorf("%d bytes are held after all calls", n)
		}
	})
}

func TestBodyThatStallsIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newIntake()
		call := servedIn(t, in)
		stalled, w := io.Pipe()
		defer w.Close()
		req := post(t, publish, "application/json", stalled)
		req.ContentLength = 1000
		began := time.Now()
		go w.Write([]byte(`{"queue":`))
		res, err := call(t.Context(), req)
		status, text := answerOf(t, res, err)
		if took := time.Since(began); status != http.StatusRequestTimeout || !strings.Contains(text, "too slowly") || took != calmPause {
			t.Errorf("a body that stalls: %d %s after %s, want 408 after %s", status, text, took, calmPause)
		}
	})
}

// TestBodyThatTricklesIsCut sends a byte a second: never a long pause, and never an end.
func TestBodyThatTricklesIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		call := servedIn(t, newIntake())
		body, w := io.Pipe()
		defer w.Close()
		req := post(t, publish, "application/json", body)
		req.ContentLength = 1 << 20
		began := time.Now()
		var writer sync.WaitGroup
		writer.Go(func() {
			for {
				if _, err := w.Write([]byte(" ")); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		})
		res, err := call(t.Context(), req)
		status, text := answerOf(t, res, err)
		if took := time.Since(began); status != http.StatusRequestTimeout || took > calmPause+time.Second {
			t.Errorf("a body that trickles: %d %s after %s, want 408 after %s", status, text, took, calmPause)
		}
		body.Close()
		writer.Wait()
	})
}

func TestEveryCallHasOneMessageOrIsKnown(t *testing.T) {
	if len(procedures()) < 50 {
		t.Fatalf("%d procedures are known", len(procedures()))
	}
	for path, m := range procedures() {
		if m.IsStreamingClient() {
			t.Errorf("%s takes a stream: its body never ends, and the intake would wait for all of it", path)
		}
	}
	for _, path := range []string{publish, "/columba.v1.AdminService/GetQueue"} {
		if _, public, ok := procedure(path); !ok || !public {
			t.Errorf("%s is not public", path)
		}
	}
	if _, public, ok := procedure("/columba.v1.StoreService/Remove"); !ok || public {
		t.Error("a store's call counts as public")
	}
}

func FuzzWeigh(f *testing.F) {
	input, _, _ := procedure(publish)
	f.Add([]byte{0x12, 0, 0x12, 0})
	f.Add([]byte(`{"messages":[{"payload":"\\\""}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		const most = 1 << 20
		if w := weighProto(b, input, most); w < 0 || w > 200*int64(len(b))+messageWeight {
			t.Fatalf("%d bytes weigh %d as protobuf", len(b), w)
		}
		if w := weighJSON(b, most); w < 0 || w > 200*int64(len(b))+messageWeight {
			t.Fatalf("%d bytes weigh %d as JSON", len(b), w)
		}
		var m pb.PublishRequest
		if proto.Unmarshal(b, &m) == nil && int64(len(m.Messages)) > weighProto(b, input, most)/messageWeight {
			t.Fatalf("%d messages weigh %d", len(m.Messages), weighProto(b, input, most))
		}
	})
}
