package cassandra

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"

	"github.com/columbamq/columba/core"
)

// TestConnect_SaysEveryTenSecondsThatNobodyAnswers: it tries every two seconds for a minute, and the log is not
// flooded.
func TestConnect_SaysEveryTenSecondsThatNobodyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		cfg := Config{Log: slog.New(slog.NewTextHandler(&said, nil))}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute-time.Second)
		defer cancel()
		tries := 0
		_, err := cfg.connectUntil(ctx, func(context.Context) (*gocql.Session, error) {
			tries++
			return nil, core.Errorf(core.CodeUnavailable, "no node answers")
		})
		if core.CodeOf(err) != core.CodeUnavailable || tries != 30 {
			t.Errorf("after %d tries, want 30: %v", tries, err)
		}
		if lines := strings.Count(said.String(), "does not answer"); lines != 6 {
			t.Errorf("it said so %d times in a minute, want 6:\n%s", lines, said.String())
		}
	})
}
