package core

import (
	"testing"
	"time"
)

// TestFormatDuration writes what ParseDuration reads.
func TestFormatDuration(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": 0, "366d": MaxAhead, "365d": MaxGroupDelay, "13h": 13 * time.Hour, "1d": 24 * time.Hour, "25h": 25 * time.Hour,
		"1h30m": 90 * time.Minute, "1m30s": 90 * time.Second, "1m": time.Minute, "-1s": -time.Second, "1ms": time.Millisecond, "10h0m5s": 10*time.Hour + 5*time.Second,
	} {
		if got := FormatDuration(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
		if back, err := ParseDuration(want); back != d || err != nil {
			t.Errorf("%q is read as %v, %v; want %v", want, back, err, d)
		}
	}
}

// TestCheckExpiry refuses a message that is due when it has expired.
func TestCheckExpiry(t *testing.T) {
	now := time.Now()
	for name, x := range map[string]struct {
		expire, due time.Time
		ok          bool
	}{
		"neither": {ok: true}, "due at once": {expire: now, ok: true}, "for ever": {due: now, ok: true}, "later": {expire: now.Add(1), due: now, ok: true},
		"at once": {expire: now, due: now}, "before": {expire: now, due: now.Add(1)},
	} {
		if err := CheckExpiry(x.expire, x.due); (err == nil) != x.ok || err != nil && CodeOf(err) != CodeBadArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestStatus_DeletedGroup tells a consumer of a deleted group that it is gone: somebody deleted it on purpose.
func TestStatus_DeletedGroup(t *testing.T) {
	if err := StatusDeleted.GroupError("/t/a", "g"); err == nil || err.Error() != "group g of queue /t/a was deleted: nothing is delivered to it any more" || CodeOf(err) != CodeNotFound {
		t.Errorf("got %v", err)
	}
}
