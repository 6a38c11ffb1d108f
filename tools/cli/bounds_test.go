package cli

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestPublish_LowestRate: the second message is due in more years than a time.Duration has, and not at once.
func TestPublish_LowestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &publishRun{started: time.Now()}
		p.flags.rate = 1e-300
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := p.pace(ctx, 2); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the second message was sent after %s: %v", time.Since(p.started), err)
		}
	})
}

// TestStdin_LongLine: the error names the line, and says how long one may be.
func TestStdin_LongLine(t *testing.T) {
	const want = "line 2 has more than 65536 bytes"
	text := "/a/b\n" + strings.Repeat("x", 100_000)
	none := func([]string) error { return nil }
	if err := eachPath(strings.NewReader(text), 10, func(string, error) {}, none); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("paths: got %v, want %q", err, want)
	}
	a := &app{stdin: io.NopCloser(strings.NewReader(text))}
	if _, err := a.tokens([]string{"-"}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("tokens: got %v, want %q", err, want)
	}
}
