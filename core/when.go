package core

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// DurationForms and TimeForms are what ParseDuration and ParseTime read, for texts.
const (
	DurationForms = "500ms, 30s, 72h, 7d or 2w"
	TimeForms     = "2026-01-02T15:04:05Z, 2026-01-02 or seconds since 1970"
)

// ParseDuration reads a duration as time.ParseDuration does, and also days of 24 hours and weeks of 7 days: "7d",
// "1w2d12h", "-2h".
func ParseDuration(s string) (time.Duration, error) {
	bad := Errorf(CodeBadArgument, "%q is not a duration like %s", clip(s), DurationForms)
	sign, rest := time.Duration(1), s
	if r, ok := strings.CutPrefix(rest, "-"); ok {
		sign, rest = -1, r
	} else {
		rest = strings.TrimPrefix(rest, "+")
	}
	var sum time.Duration
	for _, unit := range []struct {
		name string
		d    time.Duration
	}{{"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}} {
		number, after, found := strings.Cut(rest, unit.name)
		if !found {
			continue
		}
		n, err := strconv.ParseFloat(number, 64)
		if err != nil || number == "" || strings.Trim(number, "0123456789.") != "" || n*float64(unit.d)+float64(sum) >= math.MaxInt64 {
			return 0, bad
		}
		sum += time.Duration(n * float64(unit.d))
		if rest = after; rest == "" {
			return sign * sum, nil
		}
	}
	if strings.HasPrefix(rest, "-") || strings.HasPrefix(rest, "+") {
		return 0, bad
	}
	d, err := time.ParseDuration(rest)
	if err != nil || sum > math.MaxInt64-d {
		return 0, bad
	}
	return sign * (sum + d), nil
}

// FormatDuration writes a duration in the units of ParseDuration, the days of whole days first: "366d", "13h", "1h30m",
// "-1s", "0s". Shorter than a day it has no days; "25h" stays so.
func FormatDuration(d time.Duration) string {
	const day = 24 * time.Hour
	if d != 0 && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// firstSeconds is the least number that is read as seconds since 1970.
const firstSeconds = 1_000_000_000

// ParseTime reads a time: RFC 3339, a date (its first moment in UTC), or the seconds, milliseconds, microseconds or
// nanoseconds since 1970, which the number of digits tells apart: up to 11, 14, 17 and 19. Seconds before September
// 2001 are refused: a small number is meant as something else. So is the zero time, which stands for no time
// everywhere.
func ParseTime(s string) (time.Time, error) {
	for _, form := range []string{time.RFC3339Nano, time.DateOnly} {
		if t, err := time.Parse(form, s); err == nil && !t.IsZero() {
			return t, nil
		}
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && strings.Trim(s, "0123456789") == "" {
		switch digits := len(s); {
		case n < firstSeconds && digits <= 11:
			return time.Time{}, Errorf(CodeBadArgument, "%q is not a time: as seconds since 1970 it is %s; write a time like 2026-01-02T15:04:05Z, and a duration with its unit",
				s, time.Unix(n, 0).UTC().Format(time.RFC3339))
		case digits <= 11:
			return time.Unix(n, 0).UTC(), nil
		case digits <= 14:
			return time.UnixMilli(n).UTC(), nil
		case digits <= 17:
			return time.UnixMicro(n).UTC(), nil
		default:
			return time.Unix(0, n).UTC(), nil
		}
	}
	return time.Time{}, Errorf(CodeBadArgument, "%q is not a time like %s", clip(s), TimeForms)
}
