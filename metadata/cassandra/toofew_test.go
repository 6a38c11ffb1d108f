package cassandra

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// An operator learns from the log that too few nodes answer, and that they do again; from the error, what to do.
func TestGuarded_SaysThatTooFewNodesAnswer(t *testing.T) { synctest.Test(t, saysThatTooFewNodesAnswer) }

func saysThatTooFewNodesAnswer(t *testing.T) {
	var log bytes.Buffer
	var answer error
	inner := &script{onRead: func() error { return answer }}
	s := scripted(inner)
	s.session = &guarded{session: inner, everywhere: func() bool { return true }, log: slog.New(slog.NewTextHandler(&log, nil))}
	defer s.Close()
	get := func() error {
		_, err := s.Get(t.Context(), metadata.Seals, metadata.Key{Partition: "id", Row: "a"}, metadata.Quorum)
		return err
	}
	lines := func(text string) int { return strings.Count(log.String(), text) }

	get()
	if log.Len() > 0 {
		t.Errorf("with enough nodes the log says %s", &log)
	}
	answer = &gocql.RequestErrUnavailable{Consistency: gocql.Quorum, Required: 2, Alive: 1}
	for _, what := range []string{"the call that finds out", "a call that is not sent"} {
		if err := get(); core.CodeOf(err) != core.CodeUnavailable || !strings.HasSuffix(err.Error(), "; "+startNodes) {
			t.Errorf("%s: %v; want what to do at the end", what, err)
		}
	}
	if lines("too few Cassandra nodes answer") != 1 {
		t.Errorf("the log says %s; want one line of too few nodes", &log)
	}
	answer = nil
	time.Sleep(refuseFor)
	if get(); lines("enough Cassandra nodes answer again") != 1 || lines("\n") != 2 {
		t.Errorf("the log says %s; want one line of enough nodes", &log)
	}
}
