package core

import "time"

// Horizon is the longest delay of the records of a timer extent, counted from their append. Each horizon has extents of
// its own, so that a record that is due in a year does not keep an extent of records that are due in a minute.
type Horizon string

const (
	HorizonHour  Horizon = "1h"
	HorizonDay   Horizon = "1d"
	HorizonMonth Horizon = "30d"
	HorizonYear  Horizon = "1y"
)

// MaxAhead is the longest delay of a message: a year, leap years included.
const MaxAhead = 366 * 24 * time.Hour

// LongestWait bounds the timeouts that a caller names: no sum with it overflows.
const LongestWait = 100 * MaxAhead

var horizons = [...]struct {
	horizon Horizon
	reach   time.Duration
}{
	{HorizonHour, time.Hour},
	{HorizonDay, 24 * time.Hour},
	{HorizonMonth, 30 * 24 * time.Hour},
	{HorizonYear, MaxAhead},
}

// Horizons is the number of horizons; HorizonAt counts them from the nearest.
const Horizons = len(horizons)

// HorizonAt is the i-th horizon, from 0.
func HorizonAt(i int) Horizon { return horizons[i].horizon }

// HorizonOf returns the index of the shortest horizon for a delay in milliseconds; false if the delay is longer than
// MaxAhead.
func HorizonOf(ahead int64) (i int, ok bool) {
	for i := range horizons {
		if ahead <= horizons[i].reach.Milliseconds() {
			return i, true
		}
	}
	return 0, false
}

// Reach is the longest delay of the horizon; MaxAhead for a horizon that this build does not know.
func (h Horizon) Reach() time.Duration {
	for _, x := range horizons {
		if x.horizon == h {
			return x.reach
		}
	}
	return MaxAhead
}

// CheckKind returns CodeBadArgument unless a timer extent has a horizon, and a log extent none.
func CheckKind(kind ExtentKind, h Horizon) error {
	switch kind {
	case KindLog:
		if h == "" {
			return nil
		}
	case KindTimer:
		for _, x := range horizons {
			if x.horizon == h {
				return nil
			}
		}
	default:
		return Errorf(CodeUnsupported, "extents of kind %q are not served; upgrade this host", clip(string(kind)))
	}
	return Errorf(CodeUnsupported, "extents of kind %q have no horizon %q; upgrade this host", clip(string(kind)), clip(string(h)))
}

// Millis is a delay in whole milliseconds, not shorter than it.
func Millis(delay time.Duration) int64 {
	return int64((delay + time.Millisecond - 1) / time.Millisecond)
}

// UnixMillis is an instant in whole milliseconds of unix time, not before it.
func UnixMillis(at time.Time) int64 {
	return at.Add(time.Millisecond - 1).UnixMilli()
}

// CheckExpiry returns CodeBadArgument for a message that is due when it has expired already, or later: no group would
// get it. due is zero for a message that is due at once.
func CheckExpiry(expire, due time.Time) error {
	if expire.IsZero() || due.IsZero() || expire.After(due) {
		return nil
	}
	return Errorf(CodeBadArgument, "the message expires before it is due, so no group would get it; let it expire later, or deliver it sooner")
}

// CheckAhead returns CodeBadArgument for a due time too far ahead of now. A due time in the past is accepted.
func CheckAhead(due, now time.Time) error {
	if due.Sub(now) > MaxAhead {
		return Errorf(CodeBadArgument, "the message is due on %s; at most a year ahead is allowed", due.UTC().Format(time.RFC3339))
	}
	return nil
}

// CancelOutcome is the outcome of cancelling a timer, for one group. Users see these words.
type CancelOutcome string

const (
	CancelDone      CancelOutcome = "cancelled" // the group never gets it
	CancelDelivered CancelOutcome = "delivered" // too late: it was handed out, or settled, before, and goes on as if nothing had been said
	CancelDue       CancelOutcome = "due"       // too late: it was due, and may have been handed out, before its present owner began; it goes on, too
)
