package core

import (
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"0": 0, "30s": 30 * time.Second, "-2h": -2 * time.Hour, "+1m": time.Minute, "1h30m": 90 * time.Minute, "7d": 7 * day, "2w": 14 * day, "1w2d12h": 9*day + 12*time.Hour,
		"1.5d": 36 * time.Hour, "-3d": -3 * day, "0d": 0, "15250w": 15250 * 7 * day, "106751d23h": 106751*day + 23*time.Hour,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%q: %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-", "d", "7", "7 d", "d7", "--2h", "-+2h", "2h3d", "1d1w", "1d-2h", "1d+2h", "1e3d", "NaNd", "infd", "-.d", "15251w", "106751d24h", "1y", "tomorrow"} {
		if got, err := ParseDuration(text); CodeOf(err) != CodeBadArgument {
			t.Errorf("%q: %s, %v; want a bad argument", text, got, err)
		}
	}
}

func TestParseTime(t *testing.T) {
	at := time.Date(2026, 11, 24, 15, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"2026-11-24T15:04:05Z": at, "2026-11-24T16:04:05+01:00": at, "2026-11-24T15:04:05.000Z": at, "2026-11-24": time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC),
		"1795532645": at, "1795532645000": at, "1795532645000000": at, "1795532645000000000": at, "1000000000": time.Unix(1e9, 0), "99999999999": time.Unix(99999999999, 0),
		"100000000000": time.UnixMilli(100000000000), "100000000000000": time.UnixMicro(100000000000000), "100000000000000000": time.Unix(0, 100000000000000000),
	} {
		if got, err := ParseTime(text); err != nil || !got.Equal(want) {
			t.Errorf("%q: %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "2026-13-01", "2026-11-24T15:04", "-5", "+5", "1_000", "99999999999999999999", "9999999999999999999", "now", "7d", "0", "5", "999999999", "00000000005", "0001-01-01", "0001-01-01T00:00:00Z", "0001-01-01T01:00:00+01:00"} {
		if got, err := ParseTime(text); CodeOf(err) != CodeBadArgument {
			t.Errorf("%q: %s, %v; want a bad argument", text, got, err)
		}
	}
}
