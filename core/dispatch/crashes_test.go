package dispatch

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// crashLength is how many events the schedules have.
const crashLength = 4

const crashEvents = "tanlresdkuvyfcgxhm"

// replayCrashes runs a schedule; useful is whether its last event did anything.
func replayCrashes(rules crashRules, schedule string) (w *crashWorld, useful bool) {
	w = newCrashWorld(rules)
	w.feed()
	useful = true
	for i := range len(schedule) {
		useful = w.do(schedule[i])
	}
	return w, useful
}

// tryCrashes tries all schedules of so many events that begin with one, and answers what is wrong with some of those
// that break a rule.
func tryCrashes(rules crashRules, schedule string, most int) (broken []string) {
	if _, useful := replayCrashes(rules, schedule); !useful {
		return nil
	}
	for _, answer := range []string{"n", "l", "a", "r", ""} {
		w, _ := replayCrashes(rules, schedule)
		if w.broken == "" {
			w.do('x')
			w.drain(answer)
		}
		if w.broken != "" {
			return []string{fmt.Sprintf("%sx, then %q: %s", schedule, answer, w.broken)}
		}
	}
	if len(schedule) == most {
		return nil
	}
	for _, event := range []byte(rules.events) {
		if broken = append(broken, tryCrashes(rules, schedule+string(event), most)...); len(broken) > 20 {
			break
		}
	}
	return broken
}

func TestCrashes_EveryShortSchedule(t *testing.T) {
	spec := core.GroupSpec{LockTimeout: 10 * time.Second}
	most := func(n int) core.GroupSpec {
		spec := spec
		spec.MaxDeliveries = n
		return spec
	}
	dies := most(2)
	dies.Expired = core.ExpiredDLQ
	for name, rules := range map[string]crashRules{
		"one delivery":         {crashEvents, most(1), 0},
		"two deliveries":       {crashEvents, most(2), 0},
		"three deliveries":     {crashEvents, most(3), 0},
		"expires":              {crashEvents, dies, 15 * time.Second},
		"expires in the queue": {crashEvents, dies, 65 * time.Second},
		"blocks at times":      {crashEvents + "bq", most(1), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if broken := tryCrashes(rules, "", crashLength); len(broken) > 0 {
				t.Errorf("%s", strings.Join(broken, "\n"))
			}
		})
	}
}

// TestCrashes_LateAppend has an append of unknown outcome come to pass after the message is due, and when the owner
// that looked for it has crashed: no attempt is made twice.
func TestCrashes_LateAppend(t *testing.T) {
	rules := crashRules{crashEvents, core.GroupSpec{LockTimeout: 10 * time.Second, MaxDeliveries: 3}, 0}
	for _, between := range []string{"", "x", "h", "ksx"} {
		for _, answer := range []string{"a", "n", "l", "r"} {
			schedule := "tlsfev" + between + "eketst" + answer + "ksx"
			w, _ := replayCrashes(rules, schedule)
			w.drain(answer)
			for _, event := range []byte("etstksetst") {
				w.do(event)
			}
			if w.broken != "" || len(w.late) > 0 {
				t.Errorf("%s, then %q: %s; %d appends are under way", schedule, answer, w.broken, len(w.late))
			}
		}
	}
}
