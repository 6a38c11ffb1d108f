package serving

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"

	"connectrpc.com/connect"
	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/telemetry"
	"github.com/prometheus/client_golang/prometheus"
)

// EndOnPanic makes a panic of next end the process with exit code 2 and the stack on stderr, like a panic of any other
// goroutine. net/http alone would close the connection and go on, perhaps with a mutex that nobody unlocks any more.
// http.ErrAbortHandler is passed on: it is no defect. A server puts its handler of all requests in here; see ADR 56.
func EndOnPanic(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(p)
			}
			// net/http catches what this goroutine panics with. Nothing catches the panic of another one.
			go panic(fmt.Sprintf("a request of %q panicked: %v\n\n%s", r.URL.Path, p, debug.Stack()))
			select {}
		}()
		next.ServeHTTP(w, r)
	})
}

// recovering answers calls that panic.
func recovering(o Options) connect.HandlerOption {
	panics := panicCounter(o.Metrics)
	return connect.WithRecover(func(_ context.Context, spec connect.Spec, _ http.Header, p any) error {
		o.Log.Error("a call panicked: this is a defect; report it with this line", "procedure", spec.Procedure,
			telemetry.KeyErr, fmt.Sprint(p), "stack", string(debug.Stack()))
		panics.WithLabelValues(spec.Procedure).Inc()
		return convert.RPCError(core.Errorf(core.CodeInternal, "the call met a defect of the server; its log has the details"))
	})
}

// panicCounter is the process's counter; the services of all its roles share it.
func panicCounter(reg prometheus.Registerer) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "columba_server_call_panics_total", Help: "Calls of the public API that panicked, by procedure. Each is a defect; the log has its stack.",
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
