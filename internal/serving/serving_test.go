package serving_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/serving"
)

const limit = 1 << 20

// store answers GetReplica, and panics for an empty extent id.
type store struct {
	columbav1connect.UnimplementedStoreServiceHandler
}

func (store) GetReplica(_ context.Context, req *connect.Request[pb.GetReplicaRequest]) (*connect.Response[pb.Replica], error) {
	if len(req.Msg.Extent) == 0 {
		panic("no extent")
	}
	return connect.NewResponse(&pb.Replica{}), nil
}

type served struct {
	url string
	log *bytes.Buffer
	reg *prometheus.Registry
}

func serve(t *testing.T) served {
	t.Helper()
	s := served{log: &bytes.Buffer{}, reg: prometheus.NewRegistry()}
	mux := http.NewServeMux()
	o := serving.Options{Request: limit, Recover: true, Log: slog.New(slog.NewTextHandler(s.log, nil)), Metrics: s.reg}
	mux.Handle(serving.Handler(columbav1connect.NewStoreServiceHandler, columbav1connect.StoreServiceHandler(store{}), o))
	mux.Handle(serving.Handler(columbav1connect.NewOutputServiceHandler, columbav1connect.OutputServiceHandler(columbav1connect.UnimplementedOutputServiceHandler{}), o))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func zipped(t *testing.T, r io.Reader) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.Copy(w, r); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func (s served) post(t *testing.T, kind, encoding string, body io.Reader) (status int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/columba.v1.StoreService/GetReplica", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", kind)
	if encoding != "" {
		req.Header.Set("Content-Encoding", encoding)
	}
	res, err := http.DefaultClient.Do(req)
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

// request is a GetReplica of exactly size bytes.
func request(t *testing.T, size int) []byte {
	t.Helper()
	head := 4 // tag and a length of three bytes
	b := append([]byte{0x0a, byte((size-head)&0x7f | 0x80), byte((size-head)>>7&0x7f | 0x80), byte((size - head) >> 14)}, make([]byte, size-head)...)
	return b
}

func TestRequestLimitHoldsAsItArrivesAndUnpacked(t *testing.T) {
	s := serve(t)
	for _, zip := range []string{"", "gzip"} {
		for size, want := range map[int]int{limit: http.StatusOK, limit + 1: http.StatusTooManyRequests} {
			body := request(t, size)
			if zip != "" {
				body = zipped(t, bytes.NewReader(body))
			}
			if status, text := s.post(t, "application/proto", zip, bytes.NewReader(body)); status != want {
				t.Errorf("%d bytes %s: status %d %s, want %d", size, zip, status, text, want)
			}
		}
	}
}

// TestUnpackingEndsAtTheLimit: the library by itself unpacks all of a bomb, only to say how large it is.
func TestUnpackingEndsAtTheLimit(t *testing.T) {
	s := serve(t)
	bomb := zipped(t, io.LimitReader(zeros{}, 8*limit))
	status, text := s.post(t, "application/proto", "gzip", bytes.NewReader(bomb))
	if status != http.StatusTooManyRequests || !strings.Contains(text, "unpacks to more than") {
		t.Errorf("a bomb: status %d %s, want 429 and that it was not unpacked further", status, text)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestPanicIsLoggedCountedAndAnswered(t *testing.T) {
	s := serve(t)
	client := columbav1connect.NewStoreServiceClient(http.DefaultClient, s.url)
	_, err := client.GetReplica(t.Context(), connect.NewRequest(&pb.GetReplicaRequest{}))
	if core.CodeOf(convert.FromRPC(err)) != core.CodeInternal {
		t.Errorf("a call that panicked: %v, want %s", err, core.CodeInternal)
	}
	if log := s.log.String(); !strings.Contains(log, "level=ERROR") || !strings.Contains(log, "no extent") || !strings.Contains(log, "serving_test.go") {
		t.Errorf("the log has no error with the panic and its stack: %s", log)
	}
	families, err := s.reg.Gather()
	if err != nil || len(families) != 1 || families[0].GetMetric()[0].GetCounter().GetValue() != 1 {
		t.Errorf("metrics are %v (%v), want one panic", families, err)
	}
}

func TestServiceWithoutLimitIsADefect(t *testing.T) {
	for _, request := range []int{0, -1, serving.MaxRequest + 1} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a service with a limit of %d bytes was made", request)
				}
			}()
			serving.Handler(columbav1connect.NewStoreServiceHandler, columbav1connect.StoreServiceHandler(store{}), serving.Options{Request: request})
		}()
	}
}
