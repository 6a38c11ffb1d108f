// Package intake owns the admission of calls to a process: it limits the calls in progress and the bytes of their
// bodies and answers, requires a minimum speed of both, and unpacks a body before any handler sees it.
package intake

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/serving"
)

// maxPage bounds the body of a request that is no call, in bytes.
const maxPage = 1 << 20

// Limits of the budgets of a process. The public calls and those of other hosts have one each: a call of one kind may
// wait for one of the other.
var (
	PublicLimits = Limits{Body: 32 << 20, Small: 16 << 20, Large: 96 << 20, Waiting: 256, Wait: 5 * time.Second}
	HostLimits   = Limits{Body: 48 << 20, Small: 16 << 20, Large: 96 << 20, Waiting: 256, Wait: 5 * time.Second}
)

// Intake reads the bodies of all requests of a process. Safe for concurrent use.
type Intake struct {
	log      *slog.Logger
	places   *places
	decoding decoding
	public   *Budget
	hosts    *Budget
	answers  [3]*Budget // of the public API, of hosts, of stores
	errors   *connect.ErrorWriter
	refused  *prometheus.CounterVec
}

// New makes the intake of a process with empty budgets.
func New(log *slog.Logger, reg prometheus.Registerer) *Intake {
	in := &Intake{
		log: log, places: newPlaces(mostCalls), decoding: newDecoding(), public: NewBudget(PublicLimits, time.Now), hosts: NewBudget(HostLimits, time.Now), errors: connect.NewErrorWriter(),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "columba_server_request_bodies_refused_total", Help: "Requests whose body was refused, by reason.",
		}, []string{"reason"}),
	}
	for i, l := range []Limits{PublicAnswers, HostAnswers, StoreAnswers} {
		in.answers[i] = NewBudget(l, time.Now)
	}
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "columba_server_answers_bytes", Help: "Bytes of answers that are reserved or that clients have not read yet.",
	}, func() float64 { return in.ofAnswers((*Budget).Held) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "columba_server_answers_waiting", Help: "Calls that wait until there is room for their answer.",
	}, func() float64 { return in.ofAnswers(func(b *Budget) int64 { return int64(b.Waiting()) }) }))
	held := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "columba_server_request_bodies_bytes", Help: "Bytes of requests that arrive or are being answered.",
	}, func() float64 { return float64(in.public.Held() + in.hosts.Held()) })
	waiting := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "columba_server_request_bodies_waiting", Help: "Requests that wait until there is room for their body.",
	}, func() float64 { return float64(in.public.Waiting() + in.hosts.Waiting()) })
	reg.MustRegister(in.refused, held, waiting)
	for k, label := range labels {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "columba_server_calls", Help: "Calls in progress, by kind.", ConstLabels: prometheus.Labels{"kind": label},
		}, func() float64 { return float64(in.places.under(kind(k))) }))
	}
	return in
}

// ofAnswers sums a number over the budgets of answers.
func (in *Intake) ofAnswers(number func(*Budget) int64) (sum float64) {
	for _, b := range in.answers {
		sum += float64(number(b))
	}
	return sum
}

// Serve gives the request a place, reads its body, and has next answer it. address and conn say whose it is. A request
// that has no body goes through.
func (in *Intake) Serve(rw http.ResponseWriter, r *http.Request, address string, conn any, next http.Handler) {
	w := NewAnswer(rw, r)
	input, public, isCall := procedure(r.URL.Path)
	var place *call
	if isCall {
		var err error
		if place, err = in.places.enter(kindOf(r.URL.Path, public), address, conn); err != nil {
			in.refuseCall(w, r, "calls", err)
			return
		}
		defer in.places.leave(place)
	}
	if isCall {
		pages := next
		next = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { in.handle(w, r, public, address, conn, pages) })
	}
	if r.Body == nil || r.Body == http.NoBody {
		next.ServeHTTP(w, r)
		return
	}
	control := http.NewResponseController(w)
	if !isCall || r.Method != http.MethodPost {
		// No page needs more than a few bytes. The rest of the body that the handler leaves is read within the
		// deadline, too.
		_ = control.SetReadDeadline(time.Now().Add(calmPause)) // a connection without deadlines is one of a test
		r.Body = http.MaxBytesReader(w, r.Body, maxPage)
		next.ServeHTTP(w, r)
		return
	}
	budget := in.hosts
	if public {
		budget = in.public
	}
	past := func() { _ = control.SetReadDeadline(time.Unix(1, 0)) }
	d := budget.Body(address, conn, past)
	defer d.Release()
	a := &arrival{body: d, from: r.Body, control: control, input: input}
	in.places.arrives(place, d)
	whole, err := a.read(r)
	cut, lost := d.complete(), in.places.arrived(place)
	if (cut || lost) && err == nil {
		err = errSlow
	}
	var heavy bool
	if err == nil {
		heavy, err = in.weigh(r.Context(), a, whole)
	}
	if heavy && err == nil {
		err = in.decoding.begin(r.Context(), budget.limits.Wait)
	}
	if err != nil {
		in.refuse(w, r, control, a, err)
		return
	}
	if heavy {
		end := sync.OnceFunc(in.decoding.end)
		defer end()
		r = r.WithContext(serving.WithDecoded(r.Context(), end))
	}
	if control.SetReadDeadline(time.Time{}) != nil {
		in.log.Debug("a connection without deadlines", "addr", r.RemoteAddr)
	}
	r.Body = &wholeBody{whole}
	r.ContentLength = int64(len(whole))
	r.Header.Set("Content-Length", strconv.Itoa(len(whole)))
	next.ServeHTTP(w, r)
}

// errSlow is the reason of a body that was cut.
var errSlow = core.Errorf(core.CodeUnavailable, "the request's body came too slowly and was not taken; send it faster, or in several requests")

// refuse answers a request whose body was not taken. The connection ends: what is left of the body is on it.
func (in *Intake) refuse(w http.ResponseWriter, r *http.Request, control *http.ResponseController, a *arrival, err error) {
	status, reason := http.StatusBadRequest, "broken"
	switch code := core.CodeOf(err); {
	case errors.Is(err, errSlow):
		status, reason = http.StatusRequestTimeout, "slow"
	case code == core.CodeUnsupported:
		status, reason = http.StatusUnsupportedMediaType, "unsupported"
	case code == core.CodeTooLarge:
		status, reason = http.StatusRequestEntityTooLarge, "too_large"
	case code == core.CodeThrottled:
		status, reason = http.StatusTooManyRequests, "throttled"
		w.Header().Set("Retry-After", "1")
	}
	in.log.Debug("a request's body was refused", "addr", r.RemoteAddr, "path", r.URL.Path, "bytes", a.arrived, "err", err)
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
	_ = control.SetReadDeadline(time.Now().Add(lastRead))
	in.answer(w, r, status, reason, err)
	if r.ProtoMajor == 1 && r.Close && !errors.Is(err, errSlow) { // the HTTP server would close at once, and a client that still writes lose the answer
		_ = control.Flush()
		_, _ = io.CopyN(io.Discard, a.from, mostRead)
	}
}

// refuseCall answers a call that has no place, or whose answer has no room. The connection stays, for new ones cost
// more than the refusal.
func (in *Intake) refuseCall(w http.ResponseWriter, r *http.Request, reason string, err error) {
	if r.ProtoMajor == 1 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(lastRead)) // the server reads what is left of a short body
	}
	w.Header().Set("Retry-After", "1")
	in.answer(w, r, http.StatusTooManyRequests, reason, err)
}

// answer says why a request was refused.
func (in *Intake) answer(w http.ResponseWriter, r *http.Request, status int, reason string, err error) {
	in.refused.WithLabelValues(reason).Inc()
	if !in.errors.IsSupported(r) {
		http.Error(w, err.Error(), status)
		return
	}
	_ = in.errors.Write(&statusWriter{w, status}, r, convert.RPCError(err)) // the client has gone when it fails
}

// lastRead is how long the server reads what a refused client still sends, so that the answer reaches it; mostRead is
// how many bytes of that, when the client wants the connection closed.
const (
	lastRead = 500 * time.Millisecond
	mostRead = 2 << 20
)

// statusWriter puts a status in the place of the library's, which has fewer of them. Answers of gRPC are 200 and stay
// it.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (s *statusWriter) WriteHeader(status int) {
	if status >= http.StatusBadRequest {
		status = s.status
	}
	s.ResponseWriter.WriteHeader(status)
}
