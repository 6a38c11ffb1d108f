package intake

import (
	"bytes"
	"context"
	"encoding/binary"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/descriptorpb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/api/columbav1/columbav1connect"
	"github.com/columbamq/columba/internal/serving"
)

// decoder tells of each publish how many messages it has and how many bytes the budget holds for it.
type decoder struct {
	columbav1connect.UnimplementedMessageServiceHandler
	in   *Intake
	told func(messages int, held int64)
}

func (d *decoder) Publish(_ context.Context, req *connect.Request[pb.PublishRequest]) (*connect.Response[pb.PublishResponse], error) {
	d.told(len(req.Msg.Messages), d.in.public.Held())
	return connect.NewResponse(&pb.PublishResponse{}), nil
}

// servedByLibrary is a small intake before the library's own handler, which tells what it decodes.
func servedByLibrary(told func(messages int, held int64)) http.Handler {
	in := newIntake()
	in.public = NewBudget(Limits{Body: 1 << 20, Small: 1 << 20, Large: 4 << 20, Waiting: 1, Wait: PublicLimits.Wait}, in.public.now)
	path, service := serving.Handler(columbav1connect.NewMessageServiceHandler, columbav1connect.MessageServiceHandler(&decoder{in: in, told: told}),
		serving.Options{Request: 32 << 20, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	mux := http.NewServeMux()
	mux.Handle(path, service)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { in.Serve(w, r, "client", "conn", mux) })
}

// TestContentTypeIsReadAsTheLibraryReadsIt writes the types of bodies that take too much in ways that the library takes
// for the same.
func TestContentTypeIsReadAsTheLibraryReadsIt(t *testing.T) {
	elements := bytes.Repeat([]byte{0x12, 0}, 200<<10)
	objects := []byte(`{"messages":[` + strings.Repeat("{},", 200<<10) + `{}]}`)
	for _, c := range []struct {
		kind, packed string
		body         []byte
		status       int
	}{
		{"Application/Proto", "", elements, http.StatusRequestEntityTooLarge},
		{"application/proto ", "gzip", zip(t, elements), http.StatusRequestEntityTooLarge},
		{"Application/JSON", "", objects, http.StatusRequestEntityTooLarge},
		{"APPLICATION/json; Charset=UTF-8", "", objects, http.StatusRequestEntityTooLarge},
		{"Application/grpc", "gzip", envelope(1, zip(t, elements)), http.StatusOK}, // the status of gRPC is in its trailers
		{"Application/grpc+proto", "gzip", envelope(1, zip(t, elements)), http.StatusOK},
		{"APPLICATION/GRPC-WEB+PROTO", "gzip", envelope(1, zip(t, elements)), http.StatusOK},
		{"application/GRPC+JSON; charset=\"UTF-8\"", "gzip", envelope(1, zip(t, objects)), http.StatusOK},
		{"", "", elements, http.StatusUnsupportedMediaType},
		{"text/json", "", objects, http.StatusUnsupportedMediaType},
		{"application/json; charset=latin1", "", objects, http.StatusUnsupportedMediaType},
		{"application/grpc+", "", elements, http.StatusOK},
		{"application/grpcx", "", elements, http.StatusUnsupportedMediaType},
		{"application/xml+json", "", objects, http.StatusUnsupportedMediaType},
	} {
		h := servedByLibrary(func(messages int, held int64) {
			t.Errorf("%q: the library decoded %d messages, for which %d bytes are held", c.kind, messages, held)
		})
		r := httptest.NewRequest(http.MethodPost, publish, bytes.NewReader(c.body))
		r.Header.Set("Content-Type", c.kind)
		header := "Content-Encoding"
		if strings.Contains(strings.ToLower(c.kind), "grpc") {
			header = "Grpc-Encoding"
		}
		r.Header.Set(header, c.packed)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		grpc := w.Header().Get("Grpc-Status")
		if w.Code != c.status || w.Code == http.StatusOK && (grpc == "" || grpc == "0") {
			t.Errorf("%q: status %d, grpc-status %q, %.200s; want %d", c.kind, w.Code, grpc, w.Body, c.status)
		}
	}
}

// TestNoCallIsAGet keeps the query of a URL from being a message: the intake weighs bodies alone.
func TestNoCallIsAGet(t *testing.T) {
	for path, m := range procedures() {
		if o, ok := m.Options().(*descriptorpb.MethodOptions); ok && o.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS {
			t.Errorf("%s may be called by GET, with its message in the URL, which nothing weighs", path)
		}
	}
	h := servedByLibrary(func(int, int64) { t.Error("a GET was decoded") })
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, publish+"?connect=v1&encoding=json&message=%7B%7D", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("a call by GET: %d, want 405", w.Code)
	}
}

// FuzzArrival sends any body under any content type: what the library decodes has been weighed.
func FuzzArrival(f *testing.F) {
	elements := bytes.Repeat([]byte{0x12, 0}, 1000)
	f.Add("application/proto", "gzip", "", byte(0), false, elements)
	f.Add("Application/grpc+proto", "", "gzip", byte(1), true, elements)
	f.Add("application/grpc-web; charset=x", "", "GZIP", byte(0x81), true, elements)
	f.Add("Application/JSON", "identity", "", byte(0), false, []byte(`{"messages":[{},{},{"payload":"YQ=="}]}`))
	f.Fuzz(func(t *testing.T, kind, unary, enveloped string, flags byte, withHead bool, message []byte) {
		body := message
		if unary == "gzip" || flags&1 != 0 {
			body = zip(t, message)
		}
		if withHead {
			body = append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(body))), body...)
		}
		h := servedByLibrary(func(messages int, held int64) {
			// A weight below twice the bytes and a little is not held apart from them.
			if weight := int64(messages) * messageWeight; weight > 2*held+firstBuffer {
				t.Errorf("%q: %d messages were decoded, for which %d bytes are held", kind, messages, held)
			}
		})
		r := httptest.NewRequest(http.MethodPost, publish, bytes.NewReader(body))
		r.Header = http.Header{"Content-Type": {kind}, "Content-Encoding": {unary}, "Grpc-Encoding": {enveloped}}
		h.ServeHTTP(httptest.NewRecorder(), r)
	})
}
