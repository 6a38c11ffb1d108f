package core

import (
	"strconv"
	"strings"
	"time"
	"unique"
)

// Exhausted is the treatment of a message that failed max deliveries times: dead letter, drop or block.
type Exhausted string

const (
	ExhaustedDLQ   Exhausted = "dlq"
	ExhaustedDrop  Exhausted = "drop"
	ExhaustedBlock Exhausted = "block"
)

// Expired is the treatment of a message that expires before a first or a later delivery: drop or dead letter.
type Expired string

const (
	ExpiredDrop Expired = "drop"
	ExpiredDLQ  Expired = "dlq"
)

// Delivery is the guarantee of a group: the treatment of a message whose consumer is lost.
type Delivery string

const (
	AtLeastOnce Delivery = "at-least-once" // it is handed out again
	AtMostOnce  Delivery = "at-most-once"  // it is lost: it was done before it was handed out
)

// UnlimitedDeliveries as MaxDeliveries: no message is ever exhausted by failed attempts.
const UnlimitedDeliveries = -1

// Breaker settings of a group: with BreakerOff every failed attempt counts, and nothing stops deliveries; with
// BreakerAlways the breaker opens when nothing succeeds.
const (
	BreakerOff    = -1
	BreakerAlways = 100
)

// Limits of a group's settings.
const (
	MinLockTimeout   = time.Second
	MaxLockTimeout   = 12 * time.Hour
	MaxMaxDeliveries = 1000
	MaxGroupDelay    = 365 * 24 * time.Hour
	MaxNackDelay     = 12 * time.Hour
	MaxMetadata      = 16 << 10 // bytes that a nack may leave with a message

	// DefaultMaxDelayedRetries is some 1 GiB in the stores, if messages have 1 KiB.
	DefaultMaxDelayedRetries = 1_000_000
	// MinMaxDelayedRetries leaves each of several output hosts a part.
	MinMaxDelayedRetries = 100
	// MaxMaxDelayedRetries is what the retry queue's index by due time, on each of its stores, is made for.
	MaxMaxDelayedRetries = 100_000_000
)

// GroupSpec has the settings of a consumer group. Zero fields mean the default: MaxDeliveries 0 is 10, and without a
// limit it is UnlimitedDeliveries.
type GroupSpec struct {
	Queue         string        `json:"queue"`
	Name          string        `json:"name"`
	Start         Start         `json:"start"`
	LockTimeout   time.Duration `json:"lock_timeout"`
	MaxDeliveries int           `json:"max_deliveries"`
	Delay         time.Duration `json:"delay"`
	SkipOlder     time.Duration `json:"skip_older"` // 0 = off
	Backoff       Backoff       `json:"backoff"`
	Exhausted     Exhausted     `json:"exhausted"`
	Breaker       int           `json:"breaker"` // percent of failed attempts that open the breaker, 1 … 100, or BreakerOff
	Status        Status        `json:"status"`

	MaxDelayedRetries int32    `json:"max_delayed_retries"` // from so many on, first deliveries slow down to the rate at which retries end
	NoNackThrottle    bool     `json:"no_nack_throttle"`    // consumers that only nack get messages as fast as others
	Delivery          Delivery `json:"delivery"`            // fixed at the group's creation
	Expired           Expired  `json:"expired"`
}

// Interned is g with texts that have few values in memory that all groups share. A process keeps many groups.
func (g GroupSpec) Interned() GroupSpec {
	intern(&g.Start.Mode)
	intern(&g.Exhausted)
	intern(&g.Status)
	intern(&g.Delivery)
	intern(&g.Expired)
	return g
}

func intern[S ~string](s *S) { *s = S(unique.Make(string(*s)).Value()) }

// WithDefaults fills what is not set.
func (g GroupSpec) WithDefaults() GroupSpec {
	def(&g.Start.Mode, StartLatest)
	def(&g.LockTimeout, 60*time.Second)
	def(&g.MaxDeliveries, 10)
	def(&g.Breaker, BreakerAlways)
	def(&g.MaxDelayedRetries, DefaultMaxDelayedRetries)
	if g.OnDLQ() {
		def(&g.Exhausted, ExhaustedBlock)
	}
	def(&g.Exhausted, ExhaustedDLQ)
	def(&g.Delivery, AtLeastOnce)
	def(&g.Expired, ExpiredDrop)
	def(&g.Status, StatusEnabled)
	return g
}

// OnDLQ reports whether it is a group on a dead letter queue: it has no dead letter queue of its own, and blocks what
// is exhausted.
func (g GroupSpec) OnDLQ() bool {
	_, _, ok := SplitDLQPath(g.Queue)
	return ok
}

// Validate checks a spec that has its defaults. The names are checked by ParseQueuePath and ParseGroupName.
func (g GroupSpec) Validate() error {
	switch {
	case g.LockTimeout < MinLockTimeout || g.LockTimeout > MaxLockTimeout:
		return Errorf(CodeBadArgument, "lock-timeout %s is not in %s … %s", FormatDuration(g.LockTimeout), MinLockTimeout, FormatDuration(MaxLockTimeout))
	case g.MaxDeliveries != UnlimitedDeliveries && (g.MaxDeliveries < 1 || g.MaxDeliveries > MaxMaxDeliveries):
		return Errorf(CodeBadArgument, "max-deliveries %d is not in 1 … %d, nor %d for unlimited", g.MaxDeliveries, MaxMaxDeliveries, UnlimitedDeliveries)
	case g.Breaker != BreakerOff && (g.Breaker < 1 || g.Breaker > BreakerAlways):
		return Errorf(CodeBadArgument, "breaker %d is not in 1 … %d percent, nor %d for off", g.Breaker, BreakerAlways, BreakerOff)
	case g.MaxDelayedRetries < MinMaxDelayedRetries || g.MaxDelayedRetries > MaxMaxDelayedRetries:
		return Errorf(CodeBadArgument, "max-delayed-retries %d is not in %d … %d", g.MaxDelayedRetries, MinMaxDelayedRetries, MaxMaxDelayedRetries)
	case g.Delay < 0 || g.Delay > MaxGroupDelay:
		return Errorf(CodeBadArgument, "delay %s is not in 0 … %s", FormatDuration(g.Delay), FormatDuration(MaxGroupDelay))
	case g.SkipOlder < 0 || g.SkipOlder > MaxRetention:
		return Errorf(CodeBadArgument, "skip-older %s is not in 0 … %s", FormatDuration(g.SkipOlder), FormatDuration(MaxRetention))
	case g.SkipOlder != 0 && g.SkipOlder <= g.Delay:
		return Errorf(CodeBadArgument, "skip-older %s is not longer than the delay %s: every message would be skipped", FormatDuration(g.SkipOlder), FormatDuration(g.Delay))
	case g.Exhausted != ExhaustedDLQ && g.Exhausted != ExhaustedDrop && g.Exhausted != ExhaustedBlock:
		return Errorf(CodeBadArgument, "exhausted %q is not dlq, drop or block", clip(string(g.Exhausted)))
	case g.OnDLQ() && g.Exhausted != ExhaustedBlock:
		return Errorf(CodeBadArgument, "exhausted %q is not for a group on a dead letter queue: what is exhausted there blocks", clip(string(g.Exhausted)))
	}
	if g.Delivery != AtLeastOnce && g.Delivery != AtMostOnce {
		return Errorf(CodeBadArgument, "delivery %q is not at-least-once or at-most-once", clip(string(g.Delivery)))
	}
	if g.Expired != ExpiredDrop && g.Expired != ExpiredDLQ {
		return Errorf(CodeBadArgument, "expired %q is not drop or dlq", clip(string(g.Expired)))
	}
	if g.OnDLQ() && g.Expired != ExpiredDrop {
		return Errorf(CodeBadArgument, "expired %q is not for a group on a dead letter queue: it has none of its own", clip(string(g.Expired)))
	}
	if err := g.Start.validate(); err != nil {
		return err
	}
	if err := g.Backoff.validate(); err != nil {
		return err
	}
	return checkStatus(g.Status)
}

// CheckChosen returns CodeBadArgument for settings that contradict each other, of a new group or of an update. Call it
// before WithDefaults: only settings that a user has chosen can contradict.
func (g GroupSpec) CheckChosen() error {
	switch {
	case g.Delivery != AtMostOnce:
	case g.MaxDeliveries != 0 && g.MaxDeliveries != 1:
		return Errorf(CodeBadArgument, "max-deliveries contradicts at-most-once: such a group delivers a message once; leave one of them out")
	case g.Backoff != Backoff{}:
		return Errorf(CodeBadArgument, "backoff contradicts at-most-once: such a group delivers no message again; leave one of them out")
	}
	return nil
}

// StartMode is where a new group begins.
type StartMode string

const (
	StartLatest   StartMode = "latest"
	StartEarliest StartMode = "earliest"
	StartTime     StartMode = "time"
)

// Start is a mode and, for StartTime, the instant: messages enqueued at or after it are delivered. StartLatest has an
// instant when it is resumed: see AsOf.
type Start struct {
	Mode StartMode `json:"mode"`
	At   time.Time `json:"at,omitzero"`
}

// AsOf returns the start for a second attempt to create a group; the first one began at the given instant. latest then
// means latest at that instant, because publishers know nothing of a second attempt. A message of the same microsecond
// counts as published before.
func (s Start) AsOf(began time.Time) Start {
	if s.Mode == StartLatest && s.At.IsZero() {
		s.At = began.Add(time.Microsecond)
	}
	return s
}

func (s Start) validate() error {
	switch s.Mode {
	case StartLatest, StartEarliest:
		return nil
	case StartTime:
		if s.At.IsZero() {
			return Errorf(CodeBadArgument, "start time is missing")
		}
		return nil
	}
	return Errorf(CodeBadArgument, "start %q is not earliest, latest or a time", clip(string(s.Mode)))
}

// String returns the form that ParseStart reads: earliest, latest or a time in UTC.
func (s Start) String() string {
	if s.Mode == StartTime {
		return s.At.UTC().Format(time.RFC3339Nano)
	}
	return string(s.Mode)
}

// ParseStart reads "earliest", "latest", a time as ParseTime does, or "-2h": a duration back from now.
func ParseStart(s string, now time.Time) (Start, error) {
	switch {
	case s == "" || s == string(StartLatest):
		return Start{Mode: StartLatest}, nil
	case s == string(StartEarliest):
		return Start{Mode: StartEarliest}, nil
	case strings.HasPrefix(s, "-"):
		if d, err := ParseDuration(s); err == nil {
			return Start{Mode: StartTime, At: now.Add(d)}, nil
		}
	default:
		if t, err := ParseTime(s); err == nil {
			return Start{Mode: StartTime, At: t}, nil
		}
		if len(s) < 10 && strings.Trim(s, "0123456789") == "" {
			return Start{}, Errorf(CodeBadArgument, "%q is a number without a unit; write a duration back like -2h or -7d, or a time like 2026-01-02T15:04:05Z", clip(s))
		}
	}
	return Start{}, Errorf(CodeBadArgument, "%q is not earliest, latest, a time like 2026-01-02T15:04:05Z or 2026-01-02, or a duration back like -2h or -7d", clip(s))
}

// Backoff is the delay of a failed message when the nack names none: Min × Factor^(attempt-1), moved at random by up to
// ± Jitter of itself, and never more than Max. The zero Backoff retries at once.
type Backoff struct {
	Min    time.Duration `json:"min"`
	Factor float64       `json:"factor"`
	Max    time.Duration `json:"max"`
	Jitter float64       `json:"jitter"` // 0 … 1
}

func (b Backoff) validate() error {
	if b == (Backoff{}) {
		return nil
	}
	if b.Min < 0 || b.Max < b.Min || b.Max > MaxNackDelay || !(b.Factor >= 1 && b.Factor <= 100) || !(b.Jitter >= 0 && b.Jitter <= 1) { // also refuses NaN
		return Errorf(CodeBadArgument, "backoff needs 0 ≤ min ≤ max ≤ %s, 1 ≤ factor ≤ 100 and 0 ≤ jitter ≤ 1", FormatDuration(MaxNackDelay))
	}
	return nil
}

// ParseBackoff reads "min,factor,max" or "min,factor,max,jitter", like 1s,2,1m.
func ParseBackoff(s string) (Backoff, error) {
	bad := Errorf(CodeBadArgument, "backoff %q is not min,factor,max[,jitter] like 1s,2,1m", clip(s))
	parts := strings.Split(s, ",")
	if len(parts) < 3 || len(parts) > 4 {
		return Backoff{}, bad
	}
	var b Backoff
	var err error
	if b.Min, err = ParseDuration(parts[0]); err != nil {
		return Backoff{}, bad
	}
	if b.Factor, err = strconv.ParseFloat(parts[1], 64); err != nil {
		return Backoff{}, bad
	}
	if b.Max, err = ParseDuration(parts[2]); err != nil {
		return Backoff{}, bad
	}
	if len(parts) == 4 {
		if b.Jitter, err = strconv.ParseFloat(parts[3], 64); err != nil {
			return Backoff{}, bad
		}
	}
	return b, b.validate()
}

// Delay is the wait before the attempt after the given one (from 1). random is in [0, 1).
func (b Backoff) Delay(attempt int, random float64) time.Duration {
	d := float64(b.Min)
	for range attempt - 1 {
		if d *= b.Factor; d >= float64(b.Max) {
			break
		}
	}
	most := float64(b.Max)
	d = min(d, most)
	low, high := d*(1-b.Jitter), min(d*(1+b.Jitter), most) // not cut off after the draw: half of all delays would be exactly Max
	return time.Duration(low + (high-low)*random)
}
