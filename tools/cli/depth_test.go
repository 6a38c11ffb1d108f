package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"
)

// TestDepth_WatchesLongerThanATimeout interrupts a watch after it has looked for longer than one request may take.
func TestDepth_WatchesLongerThanATimeout(t *testing.T) {
	t.Parallel()
	_, addr := newFakeServer(t)
	run(addr, "create queue /demo/a", "create group /demo/a billing")
	const timeout = 1500 * time.Millisecond
	ctx, interrupt := context.WithCancel(t.Context())
	began := time.Now()
	var talk bytes.Buffer
	shown := writerFunc(func(b []byte) (int, error) {
		if time.Since(began) > timeout {
			interrupt()
		}
		return len(b), nil
	})
	args := []string{"depth", "/demo/a", "--watch", "-o", "json", "--timeout", timeout.String()}
	if code := Main(ctx, args, strings.NewReader(""), shown, &talk, []string{"COLUMBA_ADDR=" + addr}); code != 0 || strings.Contains(talk.String(), "error") || ctx.Err() == nil {
		t.Errorf("exit code %d, stderr %q, after %s", code, talk.String(), time.Since(began))
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
