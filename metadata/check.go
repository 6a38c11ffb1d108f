package metadata

import (
	"context"
	"strings"
	"time"

	"github.com/columbamq/columba/core"
)

// DefaultDeadline is the time limit of a call whose context has no deadline.
const DefaultDeadline = 10 * time.Second

// Deadline returns ctx with a deadline: its own, or DefaultDeadline from now.
func Deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, DefaultDeadline)
}

// CheckWrite checks the arguments of a change by that rule; every store calls it first. Errors: CodeBadArgument,
// CodeTooLarge.
func CheckWrite(t Table, rule Rule, k Key, value []byte) error {
	if t.Rule != rule {
		return core.Errorf(core.CodeBadArgument, "rows of table %s do not change by this call; see its rule", t.Name)
	}
	if len(value) > MaxValue {
		return core.Errorf(core.CodeTooLarge, "value of %s %s has %d bytes; at most %d are allowed", t.Name, clip(k.Row), len(value), MaxValue)
	}
	return CheckKey(t, k)
}

// CheckUpdate is CheckWrite for an Update, with its time to live.
func CheckUpdate(t Table, k Key, value []byte, ttl time.Duration) error {
	if ttl < 0 || ttl > 0 && !t.Ends() {
		return core.Errorf(core.CodeBadArgument, "rows of table %s do not end after %s", t.Name, ttl)
	}
	return CheckWrite(t, RuleCAS, k, value)
}

// CheckKey returns CodeBadArgument for a key that no store accepts.
func CheckKey(t Table, k Key) error {
	for _, part := range [...]string{t.Name, k.Partition, k.Row} {
		if part == "" || len(part) > MaxKey || strings.IndexByte(part, 0) >= 0 {
			return core.Errorf(core.CodeBadArgument, "key %q of table %q needs 1 to %d bytes without zero", clip(part), clip(t.Name), MaxKey)
		}
	}
	return nil
}

// CheckList returns CodeBadArgument for arguments that List does not accept.
func CheckList(t Table, partition, after string, limit int) error {
	if limit < 1 {
		return core.Errorf(core.CodeBadArgument, "list of %s: limit %d is not positive", t.Name, limit)
	}
	if after == "" {
		after = partition
	}
	return CheckKey(t, Key{partition, after})
}

// clip keeps long names from filling a log line.
func clip(s string) string {
	const most = 80
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// CheckPut is CheckWrite for Put and Remove; their timestamp must be after 1970.
func CheckPut(t Table, k Key, value []byte, at time.Time) error {
	if at.UnixMicro() <= 0 {
		return core.Errorf(core.CodeBadArgument, "put to table %s without a timestamp", t.Name)
	}
	return CheckWrite(t, RulePut, k, value)
}
