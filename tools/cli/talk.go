package cli

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// talkAgain is how long the same notice is not repeated.
const talkAgain = 10 * time.Second

// talk tells the user what the client library logs, lost connections above all. Safe for concurrent use.
type talk struct {
	a    *app
	mu   sync.Mutex
	last map[string]time.Time
}

// Enabled implements slog.Handler.
func (t *talk) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle implements slog.Handler.
func (t *talk) Handle(_ context.Context, r slog.Record) error {
	t.mu.Lock()
	said := t.last[r.Message]
	again := r.Time.Sub(said) >= talkAgain
	if again {
		if t.last == nil {
			t.last = map[string]time.Time{}
		}
		t.last[r.Message] = r.Time
	}
	t.mu.Unlock()
	if !again {
		return nil
	}
	var text strings.Builder
	text.WriteString("note: " + r.Message)
	r.Attrs(func(a slog.Attr) bool {
		text.WriteString(" " + a.String())
		return true
	})
	t.a.say("%s", text.String())
	return nil
}

// WithAttrs implements slog.Handler; the client library does not use it.
func (t *talk) WithAttrs([]slog.Attr) slog.Handler { return t }

// WithGroup implements slog.Handler; the client library does not use it.
func (t *talk) WithGroup(string) slog.Handler { return t }
