package node

import (
	"bytes"
	"context"
	"log/slog"
)

// errorLog takes the lines of the library that serves HTTP. A panic of a handler is an error, and trouble of the listener, like too many
// open files, a warning; everything else is what clients do wrong, and only for who debugs.
type errorLog struct{ log *slog.Logger }

// Write implements io.Writer; the library writes one line, or one stack, at a time.
func (e errorLog) Write(line []byte) (int, error) {
	level := slog.LevelDebug
	switch {
	case bytes.Contains(line, []byte("panic serving")):
		level = slog.LevelError
	case bytes.Contains(line, []byte("Accept error")), bytes.Contains(line, []byte("superfluous")):
		level = slog.LevelWarn
	}
	e.log.Log(context.Background(), level, string(bytes.TrimSpace(line)))
	return len(line), nil
}
