package node

import (
	"net/http"
	"time"
)

// A client must take answerPart bytes of an answer within answerTime, or its connection ends.
const (
	answerPart = 256 << 10
	answerTime = 10 * time.Second
)

// answer is a ResponseWriter that waits for a slow reader so long and no longer. Waiting for something to answer is not limited by it.
type answer struct {
	http.ResponseWriter
	control *http.ResponseController
}

func newAnswer(w http.ResponseWriter, r *http.Request) *answer {
	a := &answer{w, http.NewResponseController(w)}
	if r.ProtoMajor == 1 {
		_ = a.control.SetWriteDeadline(time.Time{}) // that of the connection's request before
	}
	return a
}

// allow gives the client the time for the next part.
func (a *answer) allow() { _ = a.control.SetWriteDeadline(time.Now().Add(answerTime)) }

// Write sends p in parts.
func (a *answer) Write(p []byte) (n int, err error) {
	for {
		part := p[:min(len(p), answerPart)]
		a.allow()
		m, err := a.ResponseWriter.Write(part)
		n += m
		if p = p[len(part):]; err != nil || len(p) == 0 {
			return n, err
		}
	}
}

// WriteHeader begins the answer.
func (a *answer) WriteHeader(status int) {
	a.allow()
	a.ResponseWriter.WriteHeader(status)
}

// Flush implements http.Flusher, which streams need.
func (a *answer) Flush() {
	a.allow()
	_ = a.control.Flush() // an answer that cannot be sent fails at its next Write
}

// Unwrap implements what http.ResponseController asks for.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
