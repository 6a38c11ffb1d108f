// Package intake owns how calls come into a process: so many at once, their bodies within a budget of bytes, at a least speed, unpacked, and whole
// before anything else sees them.
package intake

import (
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
)

// maxPage bounds the body of a request that is no call, in bytes.
const maxPage = 1 << 20

// Limits of the budgets of a process. The public calls and those of other hosts have one each: a call of one kind may wait for one of the other.
var (
	PublicLimits = Limits{Body: 32 << 20, Small: 16 << 20, Large: 96 << 20, Waiting: 256, Wait: 5 * time.Second}
	HostLimits   = Limits{Body: 48 << 20, Small: 16 << 20, Large: 128 << 20, Waiting: 256, Wait: 5 * time.Second}
)

// Intake reads the bodies of all requests of a process. Safe for concurrent use.
type Intake struct {
	log     *slog.Logger
	places  *places
	public  *Budget
	hosts   *Budget
	errors  *connect.ErrorWriter
	refused *prometheus.CounterVec
}

// New makes the intake of a process with empty budgets.
func New(log *slog.Logger, reg prometheus.Registerer) *Intake {
	in := &Intake{
		log: log, places: newPlaces(mostCalls), public: NewBudget(PublicLimits, time.Now), hosts: NewBudget(HostLimits, time.Now), errors: connect.NewErrorWriter(),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "columba_server_bodies_refused_total", Help: "Requests whose body was not taken, by reason.",
		}, []string{"reason"}),
	}
	held := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "columba_server_bodies_bytes", Help: "Bytes of requests that arrive or are worked on.",
	}, func() float64 { return float64(in.public.Held() + in.hosts.Held()) })
	waiting := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "columba_server_bodies_waiting", Help: "Requests that wait until there is room for their body.",
	}, func() float64 { return float64(in.public.Waiting() + in.hosts.Waiting()) })
	reg.MustRegister(in.refused, held, waiting)
	for k, label := range labels {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "columba_server_calls", Help: "Calls under way, by kind.", ConstLabels: prometheus.Labels{"kind": label},
		}, func() float64 { return float64(in.places.under(kind(k))) }))
	}
	return in
}

// Serve gives the request a place, reads its body, and has next answer it. address and conn say whose it is. A request that has no body goes
// through.
func (in *Intake) Serve(w http.ResponseWriter, r *http.Request, address string, conn any, next http.Handler) {
	input, public, isCall := procedure(r.URL.Path)
	if isCall {
		k := kindOf(r.URL.Path, public)
		if err := in.places.enter(k, address); err != nil {
			in.refuseCall(w, r, err)
			return
		}
		defer in.places.leave(k, address)
	}
	if r.Body == nil || r.Body == http.NoBody {
		next.ServeHTTP(w, r)
		return
	}
	control := http.NewResponseController(w)
	if !isCall || r.Method != http.MethodPost {
		// No page needs more than a few bytes. What the handler leaves is read within the deadline, too.
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
	a := &arrival{body: d, from: r.Body, control: control, input: input, json: strings.Contains(r.Header.Get("Content-Type"), "json")}
	whole, err := a.read(r)
	if cut := d.complete(); cut && err == nil {
		err = errSlow
	}
	if err != nil {
		in.refuse(w, r, control, a, err)
		return
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
	case code == core.CodeTooLarge:
		status, reason = http.StatusRequestEntityTooLarge, "too_large"
	case code == core.CodeThrottled:
		status, reason = http.StatusTooManyRequests, "throttled"
		w.Header().Set("Retry-After", "1")
	}
	in.log.Debug("a request's body was not taken", "addr", r.RemoteAddr, "path", r.URL.Path, "bytes", a.arrived, "err", err)
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
	_ = control.SetReadDeadline(time.Now().Add(lastRead))
	in.answer(w, r, status, reason, err)
}

// refuseCall answers a call that has no place. Nothing of its body was read; the connection stays, for new ones cost more than the refusal.
func (in *Intake) refuseCall(w http.ResponseWriter, r *http.Request, err error) {
	if r.ProtoMajor == 1 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(lastRead)) // the server reads what is left of a short body
	}
	w.Header().Set("Retry-After", "1")
	in.answer(w, r, http.StatusTooManyRequests, "calls", err)
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

// lastRead is how long the server reads what a refused client still sends, so that the answer reaches it.
const lastRead = 500 * time.Millisecond

// statusWriter puts a status in the place of the library's, which has fewer of them. Answers of gRPC are 200 and stay it.
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

// arrival is one body on its way.
type arrival struct {
	body    *Body
	from    io.ReadCloser
	control *http.ResponseController
	input   protoreflect.MessageDescriptor
	json    bool
	arrived int64
}

// read returns the whole body, unpacked; the budget holds its bytes and what it becomes when it is decoded.
func (a *arrival) read(r *http.Request) ([]byte, error) {
	ctx := r.Context()
	kind := r.Header.Get("Content-Type")
	wire := io.Reader(&clocked{a})
	length := r.ContentLength
	if length > a.most() {
		return nil, a.tooLarge(length)
	}
	var head []byte
	enveloped := strings.HasPrefix(kind, "application/grpc") || strings.HasPrefix(kind, "application/connect+")
	switch packed := r.Header.Get("Content-Encoding"); {
	case enveloped:
		if err := a.body.grow(ctx, small, envelopeHead); err != nil {
			return nil, err
		}
		a.body.begin()
		head = make([]byte, envelopeHead)
		if n, err := io.ReadFull(wire, head); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return head[:n], nil // the library says what is wrong with it
		} else if err != nil {
			return nil, a.broken(err)
		}
		length = int64(binary.BigEndian.Uint32(head[1:]))
		if length > a.most() {
			return nil, a.tooLarge(length)
		}
		if head[0]&1 != 0 {
			if !packedBy(r.Header.Get("Grpc-Encoding"), r.Header.Get("Connect-Content-Encoding")) {
				return nil, errPacking
			}
			wire, head[0], length = &unpacking{from: io.LimitReader(wire, length)}, head[0]&^1, -1
		} else {
			wire = io.MultiReader(io.LimitReader(wire, length), onlyOne{wire})
		}
	case packed == "" || packed == "identity":
	case packed == "gzip":
		r.Header.Del("Content-Encoding")
		wire, length = &unpacking{from: wire}, -1
	default:
		return nil, errPacking
	}
	whole, err := a.buffer(ctx, wire, length, head)
	if err != nil {
		return nil, err
	}
	if enveloped {
		if length >= 0 && int64(len(whole)-envelopeHead) != length {
			return nil, core.Errorf(core.CodeBadArgument, "the request has %d bytes, its head says %d", len(whole)-envelopeHead, length)
		}
		binary.BigEndian.PutUint32(whole[1:], uint32(len(whole)-envelopeHead))
	}
	return whole, a.weigh(ctx, whole[len(head):])
}

// envelopeHead is what is before a message of gRPC: a flag and the length.
const envelopeHead = 5

var errPacking = core.Errorf(core.CodeUnsupported, "the request is compressed by something other than gzip; send it as it is, or by gzip")

func packedBy(encodings ...string) bool {
	for _, e := range encodings {
		if e == "gzip" {
			return true
		}
	}
	return false
}

func (a *arrival) most() int64 { return a.body.b.limits.Body }

func (a *arrival) tooLarge(n int64) error {
	return core.Errorf(core.CodeTooLarge, "the request has %d bytes or more, at most %d are taken; send it in several", n, a.most())
}

// buffer reads all of wire behind head. A length that is known is reserved before the first byte is read; one that is not, as the buffer grows.
func (a *arrival) buffer(ctx context.Context, wire io.Reader, length int64, head []byte) ([]byte, error) {
	room := int64(firstBuffer)
	if length >= 0 {
		room = length + int64(len(head)) + 1 // with room for the end to be seen
	}
	if err := a.body.grow(ctx, classOf(room), room); err != nil {
		return nil, err
	}
	if len(head) == 0 {
		a.body.begin()
	}
	// A client says any length. Memory is given for it when the first bytes are there.
	buf := append(make([]byte, 0, min(room, SmallBody)), head...)
	for {
		n, err := wire.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch ended := errors.Is(err, io.EOF); {
		case int64(len(buf)-len(head)) > a.most():
			return nil, a.tooLarge(int64(len(buf) - len(head)))
		case ended:
			return buf, nil
		case err != nil:
			return nil, a.broken(err)
		}
		if len(buf) < cap(buf) {
			continue
		}
		if int64(cap(buf)) < room {
			buf = append(make([]byte, 0, room), buf...)
			continue
		}
		more := min(room, a.most()+envelopeHead+1-room)
		if err := a.body.grow(ctx, classOf(room+more), more); err != nil {
			return nil, err
		}
		room += more
		buf = append(make([]byte, 0, room), buf...)
	}
}

// firstBuffer is for bodies whose length is not known.
const firstBuffer = 4 << 10

func classOf(n int64) class {
	if n <= SmallBody {
		return small
	}
	return large
}

// weigh reserves what a body becomes when it is decoded, where that is more than its bytes: a message of two bytes takes many.
func (a *arrival) weigh(ctx context.Context, b []byte) error {
	most := a.body.b.most(large)
	weight := int64(0)
	if a.json {
		weight = weighJSON(b, most)
	} else {
		weight = weighProto(b, a.input, most)
	}
	if weight > most { // it was not counted further
		return core.Errorf(core.CodeTooLarge, "the request takes more than %d bytes when it is decoded; send it in several", most)
	}
	if more := weight - int64(len(b)); more > int64(len(b))+firstBuffer {
		return a.body.grow(ctx, classOf(weight), more)
	}
	return nil
}

// broken says why the arrival ended early.
func (a *arrival) broken(err error) error {
	var timeout interface{ Timeout() bool }
	var tooMuch *http.MaxBytesError
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return errSlow
	case errors.As(err, &tooMuch):
		return a.tooLarge(tooMuch.Limit)
	case core.CodeOf(err) != core.CodeInternal:
		return err
	}
	return core.Errorf(core.CodeBadArgument, "the request's body cannot be read: %w", err)
}

// clocked reads from the network, each time with the deadline that the bytes so far allow.
type clocked struct{ a *arrival }

func (c *clocked) Read(p []byte) (int, error) {
	_ = c.a.control.SetReadDeadline(c.a.body.deadline())
	n, err := c.a.from.Read(p)
	c.a.arrived += int64(n)
	c.a.body.progress(n)
	return n, err
}

// onlyOne is the end of a request with one message; whatever comes behind it is an error.
type onlyOne struct{ wire io.Reader }

func (o onlyOne) Read([]byte) (int, error) {
	var b [1]byte
	if n, err := o.wire.Read(b[:]); n == 0 {
		return 0, err
	}
	return 0, core.Errorf(core.CodeBadArgument, "the request holds more than one message")
}

// unpacking reads gzip. Its header is read with the first bytes, not before there is room for them.
type unpacking struct {
	from io.Reader
	zip  *gzip.Reader
}

func (u *unpacking) Read(p []byte) (int, error) {
	if u.zip == nil {
		zip, err := gzip.NewReader(u.from)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return 0, fmt.Errorf("unpack: %w", err)
		}
		u.zip = zip
	}
	runtime.Gosched() // unpacking never waits, and would keep the processor from who does
	return u.zip.Read(p)
}

// wholeBody gives the bytes to whoever decodes them, and lets go of them then.
type wholeBody struct{ left []byte }

func (b *wholeBody) Read(p []byte) (int, error) {
	if len(b.left) == 0 {
		b.left = nil
		return 0, io.EOF
	}
	n := copy(p, b.left)
	b.left = b.left[n:]
	return n, nil
}

func (b *wholeBody) Close() error { b.left = nil; return nil }
