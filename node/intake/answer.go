package intake

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/columbamq/columba/internal/serving"
)

// A client must take AnswerPart bytes of an answer within AnswerTime, or its connection ends.
const (
	AnswerPart = 256 << 10
	AnswerTime = 10 * time.Second
	// answerStep is how many bytes are written at once: after each it is known how fast the client reads.
	answerStep = 64 << 10
	// envelopePrefix is how many bytes gRPC, and streams, write in front of each message, by a Write of their own.
	envelopePrefix = 5
)

// Answer is a ResponseWriter that waits for a slow reader for AnswerTime and no longer, or less while others wait for
// room. The time before the handler has something to answer is not limited by it.
type Answer struct {
	http.ResponseWriter
	control *http.ResponseController
	body    *Body // what the answer holds; nil: it is not counted
	mu      struct {
		sync.Mutex
		ended bool // the handler has returned, or is about to: the writer may not be used any more
	}
}

// NewAnswer makes the writer for a request. It counts for no budget.
func NewAnswer(w http.ResponseWriter, r *http.Request) *Answer {
	a := &Answer{ResponseWriter: w, control: http.NewResponseController(w)}
	if r.ProtoMajor == 1 {
		_ = a.control.SetWriteDeadline(time.Time{}) // that of the connection's request before
	}
	return a
}

// allow gives the client the time for the next part.
func (a *Answer) allow() {
	_ = a.control.SetWriteDeadline(time.Now().Add(AnswerTime))
	if a.body != nil && a.body.isCut() { // meanwhile: the deadline of the cut may have come before that one
		a.cut()
	}
}

// cut breaks the answer off, unless it has ended. It may be called on any goroutine.
func (a *Answer) cut() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.mu.ended {
		_ = a.control.SetWriteDeadline(time.Unix(1, 0))
	}
}

// end is to be called before the handler returns.
func (a *Answer) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.ended = true
}

// Write sends p in parts.
func (a *Answer) Write(p []byte) (n int, err error) {
	if a.body != nil && len(p) > envelopePrefix { // the prefix is no part of the answer that could take long
		a.body.beginAnswer(int64(len(p)), a.isPacked())
		defer a.body.endAnswer()
	}
	for part := 0; ; part %= AnswerPart {
		step := p[:min(len(p), answerStep)]
		if part == 0 {
			a.allow()
		}
		m, err := a.ResponseWriter.Write(step)
		n, part = n+m, part+len(step)
		if p = p[len(step):]; err != nil || len(p) == 0 {
			return n, err
		}
		if a.body != nil {
			a.body.progress(m)
		}
	}
}

// isPacked reports whether the answer is compressed: then the process holds more than what is written.
func (a *Answer) isPacked() bool {
	for _, name := range []string{"Content-Encoding", "Connect-Content-Encoding", "Grpc-Encoding"} {
		if v := a.Header().Get(name); v != "" && v != "identity" {
			return true
		}
	}
	return false
}

// WriteHeader begins the answer.
func (a *Answer) WriteHeader(status int) {
	a.allow()
	a.ResponseWriter.WriteHeader(status)
}

// Flush implements http.Flusher, which streams need.
func (a *Answer) Flush() {
	a.allow()
	_ = a.control.Flush() // an answer that cannot be sent fails at its next Write
}

// Unwrap implements what http.ResponseController asks for.
func (a *Answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Limits of the answers that a process holds. Those of the public API, those of stores and those of all other hosts
// have a budget each: an answer of one kind may be made from one of the next.
var (
	PublicAnswers = Limits{Large: 96 << 20, Waiting: 256, Wait: 5 * time.Second, answers: true}
	HostAnswers   = Limits{Large: 96 << 20, Waiting: 256, Wait: 5 * time.Second, answers: true}
	StoreAnswers  = Limits{Large: 96 << 20, Waiting: 256, Wait: 5 * time.Second, answers: true}
)

// Room that calls reserve for their answers before they are handled.
const (
	largeAnswer = 8 << 20 // a page of messages, or a part of an extent
	listAnswer  = 1 << 20 // a page of a list, or one message
	pullAnswer  = 1 << 20 // must be there, but is not reserved: see Pull in the frontend
)

// answerRoom is what a call reserves for its answer. It is 0 for calls whose answers are small, or bounded by their
// requests; and for pulls, which wait.
func answerRoom(path string) int64 {
	_, method, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch {
	case method == "Peek", method == "ListDeadLetters", method == "ListDelayed", method == "ListTimers", method == "ListWaiting",
		method == "ListRetryQueue", method == "ReadRange", method == "ListDue":
		return largeAnswer
	case strings.Contains(path, ".MetadataService/"), method == "ListAssignments":
		return 0 // servers start and work by these
	case strings.HasPrefix(method, "List"), method == "GetMessage", method == "WhyStuck":
		return listAnswer
	}
	return 0
}

// answersOf is the budget of the answers of a call.
func (in *Intake) answersOf(path string, public bool) *Budget {
	switch {
	case public:
		return in.answers[0]
	case strings.Contains(path, ".StoreService/"):
		return in.answers[2]
	}
	return in.answers[1]
}

// handle has next answer a call, with room for the answer. Without it the call is refused.
func (in *Intake) handle(a *Answer, r *http.Request, public bool, address string, conn any, next http.Handler) {
	d := in.answersOf(r.URL.Path, public).Body(address, conn, a.cut)
	d.silent = true
	defer d.Release()
	defer a.end()
	room := answerRoom(r.URL.Path)
	if strings.Contains(r.Header.Get("Content-Type"), "json") || r.Method == http.MethodGet {
		room += room / 3 // payloads are in base64
	}
	if room > 0 {
		if err := d.grow(r.Context(), large, room); err != nil {
			in.refuseCall(a, r, "answers", err)
			return
		}
	}
	a.body = d
	ctx := serving.WithAnswerRoom(r.Context(), func(ctx context.Context) error { return d.await(ctx, pullAnswer) })
	ctx = serving.WithAnswerHold(ctx, d.made)
	next.ServeHTTP(a, r.WithContext(ctx))
}

// await waits until there is room for n more bytes, as grow does, and does not take it.
func (d *Body) await(ctx context.Context, n int64) error {
	if err := d.grow(ctx, large, n); err != nil {
		return err
	}
	d.b.mu.Lock()
	defer d.b.mu.Unlock()
	d.hold(d.held[large] - n)
	return nil
}

// made holds an answer of n bytes that is about to be packed and written; small ones do not count.
func (d *Body) made(n int) {
	d.b.mu.Lock()
	defer d.b.mu.Unlock()
	if n > SmallBody {
		d.hold(max(int64(n), d.held[large]))
	}
}

// beginAnswer begins to write n bytes: the body holds so much from now on, and no longer what was reserved. There may
// be no room for it; then who waits for room has slow readers cut. Of a packed answer the reserved room is held, too.
func (d *Body) beginAnswer(n int64, packed bool) {
	d.b.mu.Lock()
	defer d.b.mu.Unlock()
	if n <= SmallBody {
		n = 0 // there is one for each call at most
	}
	if packed {
		n = max(n, d.held[large])
	}
	d.hold(n)
	d.silent = n == 0
	d.began, d.last, d.arrived = d.b.now(), d.b.now(), 0
}

// endAnswer ends a Write: what it has written is not held any more.
func (d *Body) endAnswer() {
	d.b.mu.Lock()
	defer d.b.mu.Unlock()
	d.silent = true
	d.hold(0)
}

// hold makes the body hold n bytes of the large room, whether they are there or not. With b.mu.
func (d *Body) hold(n int64) {
	b := d.b
	if more := n - d.held[large]; more > 0 {
		b.take(d, large, more)
	} else if more < 0 {
		b.giveBack(d, large, -more)
		b.serve()
	}
}
