package core

import (
	"cmp"
	"time"
)

// RecurringEvery is how often a failure that goes on is logged.
const RecurringEvery = time.Minute

// Recurring chooses which failures of a call that is made again and again are logged: the first one after a success,
// and then one a minute. The zero value has seen none. Not safe for concurrent use.
type Recurring struct {
	// Every is how often, for a caller that gives up after a minute; 0: RecurringEvery.
	Every time.Duration
	told  time.Time // zero: the last call succeeded
}

// Failed notes a failure, and reports whether it is to be logged.
func (r *Recurring) Failed(now time.Time) (tell bool) {
	if tell = r.told.IsZero() || now.Sub(r.told) >= cmp.Or(r.Every, RecurringEvery); tell {
		r.told = now
	}
	return tell
}

// Succeeded notes a success: the next failure is logged.
func (r *Recurring) Succeeded() { r.told = time.Time{} }
