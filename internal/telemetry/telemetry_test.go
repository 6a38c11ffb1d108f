package telemetry

import (
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"unicode"
)

func TestLoggerFormats(t *testing.T) {
	for _, format := range Formats {
		var out strings.Builder
		log, err := NewLogger(&out, slog.LevelInfo, format)
		if err != nil {
			t.Fatal(err)
		}
		log.Debug("not wanted")
		log.Info("extent sealed", KeyExtent, "e1", KeySeq, 7)
		if strings.Contains(out.String(), "not wanted") || strings.Count(out.String(), "\n") != 1 {
			t.Errorf("%s: got %q, want one line", format, out.String())
		}
		var line map[string]any
		isJSON := json.Unmarshal([]byte(out.String()), &line) == nil
		if isJSON != (format == "json") {
			t.Errorf("%s: got %q", format, out.String())
		}
	}
	if _, err := NewLogger(nil, slog.LevelInfo, "xml"); err == nil || !strings.Contains(err.Error(), "text, json") {
		t.Errorf("format xml: got %v, want an error that lists the formats", err)
	}
}

// TestLinesDoNotSteerATerminal logs characters that a terminal obeys or hides, in every place of a line.
func TestLinesDoNotSteerATerminal(t *testing.T) {
	const hostile = "a\x7f\u009b2J\u202e\u2066\u200b\u2028\U000e0041\x1b[2J\xffü"
	for _, format := range Formats {
		var out strings.Builder
		log, err := NewLogger(&out, slog.LevelInfo, format)
		if err != nil {
			t.Fatal(err)
		}
		log.With("with", hostile).WithGroup(hostile).Info(hostile, hostile, "v", "err", errors.New(hostile), "any", []string{hostile})
		if i := strings.IndexFunc(strings.TrimSuffix(out.String(), "\n"), func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("%s: a character at %d of %q is not printable", format, i, out.String())
		}
		var line map[string]any
		if format != "json" {
			continue
		}
		if err := json.Unmarshal([]byte(out.String()), &line); err != nil || line["with"] != strings.ToValidUTF8(hostile, "\ufffd") {
			t.Errorf("the line is read as %q (%v), want %q", line["with"], err, hostile)
		}
	}
}

func TestParseLevel(t *testing.T) {
	for _, s := range Levels {
		if l, err := ParseLevel(s); err != nil || strings.ToLower(l.String()) != s {
			t.Errorf("level %q: got %v, %v", s, l, err)
		}
	}
	if _, err := ParseLevel("loud"); err == nil {
		t.Error("level loud: got no error")
	}
}

func TestBucketsEndWhereTheySay(t *testing.T) {
	for name, tc := range map[string]struct {
		buckets     []float64
		first, last float64
	}{
		"latency": {LatencyBuckets(), 100e-6, 13.1072},
		"fine":    {FineBuckets(), 1e-3, 16.384},
		"wait":    {WaitBuckets(), 10e-3, 671088.64},
		"count":   {CountBuckets(), 1, 65536},
	} {
		first, last := tc.buckets[0], tc.buckets[len(tc.buckets)-1]
		if math.Abs(first-tc.first) > 1e-9 || math.Abs(last-tc.last) > 1e-6 {
			t.Errorf("%s: got %g to %g, want %g to %g", name, first, last, tc.first, tc.last)
		}
	}
}
