// Package serving owns the common rules of all services on the service port: limits of requests and answers, and the
// handling of a panic, which is logged, counted and answered.
package serving

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/telemetry"
)

// MaxRequest is the largest limit of a request that a service may have, in bytes. A batch with the largest record fits.
const MaxRequest = 64 << 20

// maxAnswer bounds an answer, in bytes: what the clients of this module read at most.
const maxAnswer = 64 << 20

// compressFrom is the size of an answer, in bytes, from which on compressing it is worth the CPU time.
const compressFrom = 16 << 10

// Options of a service.
type Options struct {
	// Request is the largest request in bytes, both as it arrives and unpacked; 1 … MaxRequest.
	Request int
	// Log gets panics with their stacks.
	Log *slog.Logger
	// Metrics counts panics; nil counts none.
	Metrics prometheus.Registerer
	// More are options of the service itself, like interceptors.
	More []connect.HandlerOption
}

// Handler makes the handler of a service, for a mux. It is the only way to make one: a test of internal/archtest refuses others.
// Limits that are missing or too large are a defect of the caller, and panic.
//
// A request over the limit is refused while it is read, also while it is unpacked. A panic of a call becomes an error of the log and
// core.CodeInternal for its caller.
func Handler[S any](make func(S, ...connect.HandlerOption) (string, http.Handler), service S, o Options) (path string, handler http.Handler) {
	if o.Request < 1 || o.Request > MaxRequest {
		panic(fmt.Sprintf("serving: a service with a limit of %d bytes for a request; give one in 1 … %d", o.Request, MaxRequest))
	}
	panics := panicCounter(o.Metrics)
	opts := append([]connect.HandlerOption{
		connect.WithInterceptors(decoded{}),
		connect.WithReadMaxBytes(o.Request),
		connect.WithSendMaxBytes(maxAnswer),
		connect.WithCompressMinBytes(compressFrom),
		connect.WithCompression("gzip",
			func() connect.Decompressor { return &bounded{limit: o.Request} },
			func() connect.Compressor { return gzip.NewWriter(nil) }),
	}, o.More...)
	// The last interceptor is the innermost: the service's own see a panic as the error that it becomes.
	opts = append(opts, connect.WithRecover(func(_ context.Context, spec connect.Spec, _ http.Header, p any) error {
		o.Log.Error("a call panicked: this is a defect; report it with this line", "procedure", spec.Procedure,
			telemetry.KeyErr, fmt.Sprint(p), "stack", string(debug.Stack()))
		panics.WithLabelValues(spec.Procedure).Inc()
		return convert.RPCError(core.Errorf(core.CodeInternal, "the call met a defect of the server; its log has the details"))
	}))
	return make(service, opts...)
}

// panicCounter is the process's counter; the services of all its roles share it.
func panicCounter(reg prometheus.Registerer) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "columba_server_call_panics_total", Help: "Calls that panicked, by procedure. Each is a defect; the log has its stack.",
	}, []string{"procedure"})
	if reg == nil {
		return c
	}
	err := reg.Register(c)
	if have := (prometheus.AlreadyRegisteredError{}); errors.As(err, &have) {
		return have.ExistingCollector.(*prometheus.CounterVec)
	}
	if err != nil {
		panic(err) // as MustRegister does
	}
	return c
}

// bounded unpacks gzip, and fails beyond limit bytes: without it the library unpacks all of a request that is too large, to say how large.
type bounded struct {
	limit int
	left  int
	zip   gzip.Reader
}

func (b *bounded) Reset(r io.Reader) error {
	b.left = b.limit + 1 // one more than is taken: the reader sees that there is more
	return b.zip.Reset(r)
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, fmt.Errorf("unpacks to more than %d bytes", b.limit)
	}
	n, err := b.zip.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

func (b *bounded) Close() error { return b.zip.Close() }
