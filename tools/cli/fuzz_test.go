package cli

import (
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// FuzzFlagValues reads any text as each kind of value that a person writes. An accepted value is printed as text that
// is accepted again as the same value.
func FuzzFlagValues(f *testing.F) {
	for _, s := range []string{"1MiB", "1.5GB", "5B", "0B", "0.05kB", "0", "-1", "1e300TiB", "NaN", "9223372036854775807", "unlimited", "10", "-2h", "latest", "2026-01-02T15:04:05Z", "1s,2,1m", "1s,2,1m,0.1", "1s,NaN,1m", "0,0,0", ""} {
		f.Add(s)
	}
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		var s size
		if s.Set(text) == nil {
			var again size
			if err := again.Set(s.String()); err != nil || again != s || s < 0 {
				t.Fatalf("size %q is %d, then %d (%v)", text, s, again, err)
			}
		}
		if n, err := parseDeliveries(text); err == nil && n != core.UnlimitedDeliveries && text != "" && (n < 1 || n > core.MaxMaxDeliveries) {
			t.Fatalf("deliveries %q are %d", text, n)
		}
		if b, err := core.ParseBackoff(text); err == nil && b != (core.Backoff{}) && (b.Min < 0 || b.Max < b.Min || !(b.Factor >= 1) || !(b.Jitter >= 0 && b.Jitter <= 1)) {
			t.Fatalf("backoff %q is %+v", text, b)
		}
		_, _ = core.ParseStart(text, now)
		_ = clip(text)
		_ = printable(text)
		_ = clipped(text, listedPayload)
	})
}
