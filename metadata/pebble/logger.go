package pebble

import (
	"fmt"
	"log/slog"
	"runtime"
)

// logger is the engine's. The engine calls Fatalf when it cannot go on, and must not get control back: the store is
// marked failed, refuses everything from then on, and the goroutine ends, not the process.
type logger struct {
	log  *slog.Logger
	fail func(text string)
}

func (l *logger) Infof(format string, args ...any) {}

func (l *logger) Errorf(format string, args ...any) {
	l.log.Error("metadata engine", "error", fmt.Sprintf(format, args...))
}

func (l *logger) Fatalf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	l.log.Error("metadata engine stopped", "error", text)
	l.fail(text)
	runtime.Goexit()
}
