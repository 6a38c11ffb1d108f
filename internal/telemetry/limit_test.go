package telemetry

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// limitedLog is a logger under test and the lines it wrote.
func limitedLog(t *testing.T) (*slog.Logger, func() []string) {
	t.Helper()
	var out strings.Builder
	log, err := NewLogger(&out, slog.LevelInfo, "text")
	if err != nil {
		t.Fatal(err)
	}
	return LimitBySource(log), func() []string {
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		out.Reset()
		if lines[0] == "" {
			return nil
		}
		return lines
	}
}

func TestLimitBySource_OneSourceDoesNotFloodTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, lines := limitedLog(t)
		for i := range 1000 {
			log.Info("frame refused", KeyPeer, fmt.Sprintf("192.0.2.1:%d", 1000+i)) // a connection each
		}
		if got := len(lines()); got != sourceBurst {
			t.Errorf("1000 lines of one source: got %d written, want %d", got, sourceBurst)
		}
		log.Info("frame refused", KeyPeer, "192.0.2.2:7")
		log.Info("another message", KeyPeer, "192.0.2.1:7")
		if got := lines(); len(got) != 2 {
			t.Errorf("another source and another message: got %q, want both", got)
		}
		time.Sleep(sourceEvery)
		log.Info("frame refused", KeyPeer, "192.0.2.1:9")
		log.Info("frame refused", KeyPeer, "192.0.2.1:9")
		got := lines()
		if len(got) != 1 || !strings.Contains(got[0], "suppressed=990") {
			t.Errorf("after %s: got %q, want one line that says that 990 were left out", sourceEvery, got)
		}
	})
}

func TestLimitBySource_ManySourcesTogetherAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, lines := limitedLog(t)
		for i := range 100_000 {
			log.Info("frame refused", KeyPeer, fmt.Sprintf("2001:db8::%x", i))
		}
		if got := len(lines()); got != messageBurst {
			t.Errorf("100000 sources: got %d lines, want %d", got, messageBurst)
		}
		l := log.Handler().(*limited).limits
		if got := len(l.mu.sources); got != maxSources {
			t.Errorf("counted sources: got %d, want %d", got, maxSources)
		}
		time.Sleep(10 * time.Minute)
		log.Info("frame refused", KeyPeer, "192.0.2.1:1")
		got := lines()
		if len(got) != 2 || !strings.Contains(got[0], "silent sources") || !strings.Contains(got[0], "suppressed=924") {
			t.Errorf("later: got %q, want a sum of the lines of %d silent sources and the line", got, maxSources-messageBurst)
		}
		if got := len(l.mu.sources); got != 1 {
			t.Errorf("counted sources later: got %d, want 1", got)
		}
	})
}

func TestLimitBySource_LoggersWithAttributesShareTheCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, lines := limitedLog(t)
		for range 100 {
			log.With(KeyPeer, "192.0.2.1:1", KeyExtent, "e").WithGroup("g").Warn("frame refused")
			log.Warn("frame refused", KeyPeer, "192.0.2.1:2")
			log.Debug("frame refused", KeyPeer, "192.0.2.3:2")
		}
		if got := len(lines()); got != sourceBurst {
			t.Errorf("got %d lines, want %d", got, sourceBurst)
		}
	})
}

func TestLimitBySource_LongValuesAreCut(t *testing.T) {
	log, lines := limitedLog(t)
	long := strings.Repeat("ä", maxValue)
	log.Info("frame refused", KeyErr, errors.New(long), KeyQueue, long, KeySeq, 7)
	got := strings.Join(lines(), "")
	if len(got) > 2*maxValue+200 || !strings.Contains(got, "seq=7") || strings.Contains(got, "\\x") || strings.Count(got, "…") != 2 {
		t.Errorf("got a line of %d bytes, want two values cut at %d: %.100q", len(got), maxValue, got)
	}
}
