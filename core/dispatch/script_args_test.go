package dispatch_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/dispatch"
)

// args are the words and the key=value pairs of one command.
type args struct {
	t *testing.T
	d *datadriven.TestData
}

// word is the i-th argument without a value.
func (a args) word(i int) string {
	for _, x := range a.d.CmdArgs {
		if len(x.Vals) > 0 {
			continue
		}
		if i == 0 {
			return x.Key
		}
		i--
	}
	return ""
}

func (a args) has(word string) bool {
	for _, x := range a.d.CmdArgs {
		if x.Key == word && len(x.Vals) == 0 {
			return true
		}
	}
	return false
}

// text is the value of a key; several are joined as the command line would have them.
func (a args) text(key, otherwise string) string {
	if x, ok := a.d.Arg(key); ok {
		return strings.Join(x.Vals, ",")
	}
	return otherwise
}

func (a args) number(key string, otherwise int) int {
	v := a.text(key, "")
	if v == "" {
		return otherwise
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		a.d.Fatalf(a.t, "%s: %v", key, err)
	}
	return n
}

func (a args) duration(key string, otherwise time.Duration) time.Duration {
	v := a.text(key, "")
	if v == "" {
		return otherwise
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		a.d.Fatalf(a.t, "%s: %v", key, err)
	}
	return d
}

// session reads s1, s2, …
func (a args) session(i int) dispatch.SessionID {
	n, err := strconv.Atoi(strings.TrimPrefix(a.word(i), "s"))
	if err != nil {
		a.d.Fatalf(a.t, "session %q: %v", a.word(i), err)
	}
	return dispatch.SessionID(n)
}

// run reads "7" or "3-9".
func (a args) run(i int) (first core.Seq, count uint32) {
	from, to, several := strings.Cut(a.word(i), "-")
	x, err := strconv.ParseUint(from, 10, 64)
	y := x
	if err == nil && several {
		y, err = strconv.ParseUint(to, 10, 64)
	}
	if err != nil {
		a.d.Fatalf(a.t, "seqs %q: %v", a.word(i), err)
	}
	return core.Seq(x), uint32(y - x + 1)
}

func (a args) attempt() uint16 { return uint16(a.number("attempt", 1)) }

// spec changes what a command names of a group's settings.
func (a args) spec(g core.GroupSpec) core.GroupSpec {
	g.LockTimeout = a.duration("lock", g.LockTimeout)
	g.MaxDeliveries = a.number("max", g.MaxDeliveries)
	g.Delay = a.duration("delay", g.Delay)
	g.SkipOlder = a.duration("skip-older", g.SkipOlder)
	g.Exhausted = core.Exhausted(a.text("exhausted", string(g.Exhausted)))
	g.Expired = core.Expired(a.text("expired", string(g.Expired)))
	g.Delivery = core.Delivery(a.text("delivery", string(g.Delivery)))
	if a.text("breaker", "on") == "off" {
		g.Breaker = core.BreakerOff
	}
	g.NoNackThrottle = a.text("nack-throttle", "on") == "off"
	if v := a.text("backoff", ""); v != "" {
		b, err := core.ParseBackoff(v)
		if err != nil {
			a.d.Fatalf(a.t, "%v", err)
		}
		g.Backoff = b
	}
	return g
}
