package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// TestRuleByCommand_Exhausted has a message end in three ways, and what blocks go on by an update.
func TestRuleByCommand_Exhausted(t *testing.T) {
	w := newWorld(t)
	want := map[string]depth{"dlq": {}, "drop": {}, "block": {Blocked: 1}}
	for kind := range want {
		w.make(kind, "--max-deliveries", "2", "--exhausted", kind)
	}
	w.say("a")
	for kind, d := range want {
		w.get(kind, 2, "--nack-every", "1")
		w.settles(kind, d)
		dead := 0
		if kind == "dlq" {
			dead = 1
		}
		w.letters(kind, dead)
	}
	w.counted("drop", "dropped", 1)
	w.crash()
	w.say("b")
	for kind, d := range want {
		w.one(kind, "b", 1)
		w.settles(kind, d)
	}
	w.server.Must("", "update", "group", queue, "block", "--max-deliveries", "3")
	w.one("block", "a", 3)
	w.settles("block", depth{})
}

// TestRuleByCommand_Start makes groups between messages, over a kill of the server: each begins where it was told to.
func TestRuleByCommand_Start(t *testing.T) {
	w := newWorld(t)
	w.say(numbers(1, 10)...)
	w.server.Restart() // what was open is sealed
	pause(6 * time.Second)
	at := time.Now().UTC().Format(time.RFC3339Nano)
	back := time.Now()
	pause(5 * time.Millisecond)
	w.say(numbers(11, 10)...)
	first := map[string]int{"earliest": 1, "latest": 21, "default": 21, "time": 11, "back": 11, "long": 1}
	for group, start := range map[string]string{"earliest": "earliest", "latest": "latest", "default": "", "time": at, "long": "-1h"} {
		if start == "" {
			w.server.Must("", "create", "group", queue, group)
		} else {
			w.server.Must("", "create", "group", queue, group, "--start", start)
		}
	}
	w.server.Must("", "create", "group", queue, "back", "--start", "-"+(time.Since(back)+5*time.Second).String()) // so long may the command take
	w.wrong("create", "group", queue, "future", "--start", time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	w.say(numbers(21, 10)...)
	for group, from := range first {
		got := w.get(group, 31-from)
		seen := make(map[string]bool)
		for _, m := range got {
			seen[m.Payload] = true
		}
		for n := from; n <= 30; n++ {
			if !seen[fmt.Sprint(n)] {
				t.Errorf("group %s did not get %d, but %+v", group, n, got)
				break
			}
		}
		w.settles(group, depth{})
	}
}

func TestRuleByCommand_GroupDelay(t *testing.T) {
	w := newWorld(t)
	w.make("g", "--delay", "3s")
	began := time.Now()
	w.say("a")
	var d depth
	w.looks(func() bool { d = w.depth("g"); return d == depth{Delayed: 1} || time.Since(began) >= 3*time.Second }, func() string {
		return fmt.Sprintf("%+v, want it delayed", d)
	})
	token := w.one("g", "a", 1, "--ack", "tokens").Token
	w.after("it came", began, 3*time.Second)
	w.server.Must("", "nack", token)
	w.one("g", "a", 2)
}

func TestRuleByCommand_SkipOlder(t *testing.T) {
	w := newWorld(t)
	w.make("g", "--skip-older", "6s") // so long may a command take
	w.say("retried")
	w.server.Must("", "nack", w.one("g", "retried", 1, "--ack", "tokens").Token, "--delay", "6500ms")
	w.say(numbers(1, 20)...)
	pause(6100 * time.Millisecond)
	w.say("fresh")
	attempts := make(map[string]int) // whichever is first: commands may take longer than the rest of the delay
	for _, m := range w.get("g", 2) {
		attempts[m.Payload] = m.Attempt
	}
	if len(attempts) != 2 || attempts["fresh"] != 1 || attempts["retried"] != 2 {
		t.Fatalf("got attempts %v, want the first of the fresh message and the second of the retried one", attempts)
	}
	w.silent("g", 300*time.Millisecond)
	w.settles("g", depth{})
	if n := w.server.Metric(events, `group="g"`, `event="skipped"`); n != 20 {
		t.Errorf("skipped are %v, want 20", n)
	}
}

func TestRuleByCommand_ExpireAt(t *testing.T) {
	w := newWorld(t)
	w.make("g")
	w.server.Must("unseen\n", "publish", queue, "--expire", "1s")
	w.server.Must("stays\n", "publish", queue, "--expire", "1h")
	pause(1100 * time.Millisecond)
	w.one("g", "stays", 1)
	w.server.Must("seen\n", "publish", queue, "--expire", "6s") // so long may a command take
	w.server.Must("", "nack", w.one("g", "seen", 1, "--ack", "tokens").Token, "--delay", "6s")
	w.silent("g", 6500*time.Millisecond)
	var d depth
	w.looks(func() bool { // it is settled unseen when its turn comes, which takes a consumer
		w.silent("g", time.Second)
		d = w.depth("g")
		return d == depth{}
	}, func() string { return fmt.Sprintf("%+v, want nothing", d) })
	w.letters("g", 0)
	if n := w.server.Metric(events, `group="g"`, `event="expired"`); n != 2 {
		t.Errorf("lapsed are %v, want 2", n)
	}
}

// TestRuleByCommand_Order consumes a cp queue over kills of the server: in the order in which the lines were published.
// An ap queue has that within an extent.
func TestRuleByCommand_Order(t *testing.T) {
	const n = 2000
	w := newWorld(t)
	w.make("g")
	w.say(numbers(1, n)...)
	last := make(map[string]core.Seq)
	for _, m := range w.get("g", n) {
		if m.Seq != last[m.Extent]+1 {
			t.Errorf("%s:%d came after seq %d", m.Extent, m.Seq, last[m.Extent])
		}
		last[m.Extent] = m.Seq
	}
	const strict = "/t/strict"
	w.server.Must("", "create", "queue", strict, "--consistency", "cp")
	w.server.Must("", "create", "group", strict, "g", "--start", "earliest")
	for i := range 3 {
		w.server.Must(strings.Join(numbers(1+i*n, n), "\n")+"\n", "publish", strict)
		w.server.Restart()
	}
	out := w.server.Must("", "consume", strict, "g", "--count", fmt.Sprint(3*n), "--timeout", "30s")
	if want := strings.Join(numbers(1, 3*n), "\n") + "\n"; out != want {
		t.Errorf("%d lines came, not in the order of publishing", strings.Count(out, "\n"))
	}
}
