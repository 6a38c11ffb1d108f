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
	t.a.say("note: %s", sentence(r))
	return nil
}

// sentences are what the user is told of events of the client library; a word in braces is an attribute.
var sentences = map[string]string{
	"input host lost":   "the connection to input host {host} of queue {queue} is lost: {err}",
	"output host lost":  "the connection to output host {host} of group {group} of queue {queue} is lost: {err}",
	"consuming pauses":  "group {group} of queue {queue} cannot be consumed for now; the command tries again: {err}",
	"consuming goes on": "group {group} of queue {queue} is consumed again",
}

// sentence is what a log record says; one that nobody has put into words has its attributes behind it.
func sentence(r slog.Record) string {
	text, known := sentences[r.Message]
	var attrs, words []string
	r.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs, a.Key+" "+a.Value.String())
		words = append(words, "{"+a.Key+"}", a.Value.String())
		return true
	})
	switch {
	case known:
		return strings.NewReplacer(words...).Replace(text)
	case len(attrs) == 0:
		return r.Message
	}
	return r.Message + " (" + strings.Join(attrs, ", ") + ")"
}

// WithAttrs implements slog.Handler; the client library does not use it.
func (t *talk) WithAttrs([]slog.Attr) slog.Handler { return t }

// WithGroup implements slog.Handler; the client library does not use it.
func (t *talk) WithGroup(string) slog.Handler { return t }
