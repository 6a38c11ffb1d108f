package process

import (
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// AnswerWithin is how long a question may be answered as unavailable: hosts of a cluster that is busy lose each other
// for a moment.
const AnswerWithin = 30 * time.Second

// askAgain is the pause before a question is put again: each is a process.
const askAgain = 500 * time.Millisecond

// Ask is Must for a command that changes nothing: it is run again while it ends as unavailable, for AnswerWithin.
func (s *Server) Ask(args ...string) string {
	s.t.Helper()
	for end := time.Now().Add(AnswerWithin); ; <-time.After(askAgain) {
		switch r := s.Run("", args...); {
		case r.Code == 0:
			return r.Stdout
		case r.Code != core.ExitUnavailable || time.Now().After(end):
			s.t.Fatalf("columba %s: exit code %d\nstdout: %.500s\nstderr: %.2000s", strings.Join(args, " "), r.Code, r.Stdout, r.Stderr)
		}
	}
}

// Answer is Ask for a call that changes nothing.
func Answer[T any](t testing.TB, what string, call func() (T, error)) T {
	t.Helper()
	for end := time.Now().Add(AnswerWithin); ; <-time.After(askAgain) {
		switch v, err := call(); {
		case err == nil:
			return v
		case core.CodeOf(err).Exit() != core.ExitUnavailable || time.Now().After(end):
			t.Fatalf("%s: %v", what, err)
		}
	}
}
