package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	pb "github.com/columbamq/columba/api/columbav1"
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

// TestDepth_UnknownIsNotZero: a count of 0 is shown only if all extents were counted.
func TestDepth_UnknownIsNotZero(t *testing.T) {
	t.Parallel()
	shown := func(d *pb.Depth) map[string]any {
		out := make(map[string]any)
		for _, f := range depthFields(d) {
			out[f.name] = f.value
		}
		return out
	}
	unknown, empty := shown(&pb.Depth{UnknownExtents: 1, InFlight: 2}), shown(&pb.Depth{})
	for _, name := range []string{"ready", "delayed", "delayed_publish", "delayed_retry", "delayed_group", "retries", "blocked", "dead", "oldest_ready_ms", "drain_ms"} {
		if unknown[name] != nil || empty[name] == nil {
			t.Errorf("%s is shown as %v while an extent could not be counted, as %v when all could", name, unknown[name], empty[name])
		}
	}
	if unknown["in_flight"] != uint64(2) {
		t.Errorf("2 in flight are shown as %v", unknown["in_flight"])
	}
}
