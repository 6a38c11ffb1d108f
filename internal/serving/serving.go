// Package serving owns the common rules of all services on the service port: limits of requests and answers, and what
// follows a panic.
package serving

import (
	"compress/gzip"
	"fmt"
	"io"
	"log/slog"
	"net/http"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
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
	// Recover answers a call that panicked with core.CodeInternal, and the process goes on. It is for services that keep
	// nothing beyond a call. Without it a panic is left to EndOnPanic.
	Recover bool
	// Log gets the panics that Recover answers, with their stacks.
	Log *slog.Logger
	// Metrics counts them; nil counts none.
	Metrics prometheus.Registerer
	// More are options of the service itself, like interceptors.
	More []connect.HandlerOption
}

// Handler makes the handler of a service, for a mux. It is the only way to make one: a test of internal/archtest
// refuses others. Limits that are missing or too large are a defect of the caller, and panic.
//
// A request over the limit is refused while it is read, also while it is unpacked.
func Handler[S any](make func(S, ...connect.HandlerOption) (string, http.Handler), service S, o Options) (path string, handler http.Handler) {
	if o.Request < 1 || o.Request > MaxRequest {
		panic(fmt.Sprintf("serving: a service with a limit of %d bytes for a request; give one in 1 … %d", o.Request, MaxRequest))
	}
	opts := append([]connect.HandlerOption{
		connect.WithInterceptors(decoded{}),
		connect.WithReadMaxBytes(o.Request),
		connect.WithSendMaxBytes(maxAnswer),
		connect.WithCompressMinBytes(compressFrom),
		connect.WithCompression("gzip",
			func() connect.Decompressor { return &bounded{limit: o.Request} },
			func() connect.Compressor { return gzip.NewWriter(nil) }),
	}, o.More...)
	if o.Recover { // innermost: the interceptors of the service see the error that a panic becomes
		opts = append(opts, recovering(o))
	}
	return make(service, opts...)
}

// bounded unpacks gzip, and fails beyond limit bytes: without it the library unpacks all of a request that is too
// large, to say how large.
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
