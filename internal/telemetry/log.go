// Package telemetry owns the common parts of the logs and metrics of a process: keys, levels, formats, buckets.
package telemetry

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// The keys of log lines. A line uses these words for these things, and no others.
const (
	KeyRole   = "role"   // frontend, controller, inputhost, storehost, outputhost
	KeyQueue  = "queue"  // a queue's path
	KeyGroup  = "group"  // a consumer group's name
	KeyExtent = "extent" // an extent's id
	KeySeq    = "seq"    // a position in an extent
	KeyHost   = "host"   // a host's id
	KeyAddr   = "addr"   // a host's address
	KeyErr    = "err"    // what failed
	KeyPeer   = "peer"   // the address of who is connected

	KeySuppressed = "suppressed" // how many lines like this one were left out before it: see LimitBySource
)

// Levels and Formats are what NewLogger takes.
var (
	Levels  = []string{"debug", "info", "warn", "error"}
	Formats = []string{"text", "json"}
)

// ParseLevel reads one of Levels.
func ParseLevel(s string) (slog.Level, error) {
	for i, l := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if s == Levels[i] {
			return l, nil
		}
	}
	return 0, fmt.Errorf("log level %q is not one of %s", s, strings.Join(Levels, ", "))
}

// NewLogger writes lines of one of Formats, at level and above, to w.
func NewLogger(w io.Writer, level slog.Leveler, format string) (*slog.Logger, error) {
	o := &slog.HandlerOptions{Level: level}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(printable{w}, o)), nil
	}
	return nil, fmt.Errorf("log format %q is not one of %s", format, strings.Join(Formats, ", "))
}

// printable writes JSON whose characters that a terminal may obey or hide are escaped, as the text format has them:
// JSON itself leaves those beyond ASCII as they are. It means the same.
type printable struct{ w io.Writer }

// Write implements io.Writer; the handler writes one whole line at a time.
func (p printable) Write(line []byte) (int, error) {
	out := line
	if bytes.ContainsFunc(line, steers) {
		out = make([]byte, 0, len(line)+64)
		for _, r := range string(line) {
			if !steers(r) {
				out = utf8.AppendRune(out, r)
				continue
			}
			for _, unit := range utf16.AppendRune(nil, r) {
				out = fmt.Appendf(out, `\u%04x`, unit)
			}
		}
	}
	if _, err := p.w.Write(out); err != nil {
		return 0, err
	}
	return len(line), nil
}

func steers(r rune) bool { return r != '\n' && !strconv.IsPrint(r) }
