package pebble

import (
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/telemetry"
)

// sayEvery is how often errors that go on are logged.
const sayEvery = 30 * time.Second

// logger is the engine's. The engine calls Fatalf when it cannot go on, and must not get control back: the store is
// marked failed, refuses everything from then on, and the goroutine ends, not the process.
// Errors that go on are logged once every 30 s, with the number of those between. Safe for concurrent use.
type logger struct {
	log  *slog.Logger
	fail func(text string)
	mu   struct {
		sync.Mutex
		errors     core.Recurring
		suppressed int // since the last line
	}
}

func newLogger(log *slog.Logger, fail func(text string)) *logger {
	l := &logger{log: log, fail: fail}
	l.mu.errors.Every = sayEvery
	return l
}

func (l *logger) Infof(format string, args ...any) {}

func (l *logger) Errorf(format string, args ...any) {
	l.mu.Lock()
	if !l.mu.errors.Failed(time.Now()) {
		l.mu.suppressed++
		l.mu.Unlock()
		return
	}
	suppressed := l.mu.suppressed
	l.mu.suppressed = 0
	l.mu.Unlock()
	line := []any{"error", fmt.Sprintf(format, args...)}
	if suppressed > 0 {
		line = append(line, telemetry.KeySuppressed, suppressed)
	}
	l.log.Error("metadata engine", line...)
}

// worked has the next error logged, whenever it comes.
func (l *logger) worked() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.errors.Succeeded()
}

func (l *logger) Fatalf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	l.log.Error("metadata engine stopped", "error", text)
	l.fail(text)
	runtime.Goexit()
}
