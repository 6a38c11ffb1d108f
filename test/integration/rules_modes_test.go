package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/test/process"
)

// TestRuleByCommand_DeliveryMode kills a consumer that holds messages of a group that delivers at most once: they are
// lost, with what the server had sent it on top of them, and never come twice; nothing can be given back.
func TestRuleByCommand_DeliveryMode(t *testing.T) {
	w := newWorld(t)
	w.make("once", "--at-most-once", "--lock-timeout", "1s")
	w.make("least", "--lock-timeout", "1s")
	w.say(numbers(1, 40)...)
	seen := make(map[string]bool)
	h := w.hold("once", "--ack", "tokens", "--count", "10")
	for _, m := range w.holds(h, 10) {
		seen[m.Payload] = true
		if r := w.server.Run("", "nack", m.Token); r.Code != 4 || !strings.Contains(r.Stderr, string(core.CodeStale)) {
			t.Fatalf("a nack: %+v, want it refused as stale", r)
		}
	}
	h.Kill()
	w.hold("least", "--ack", "none").Kill()
	w.crash()
	rest := w.get("once", 30, "--idle", "6s") // so long may it take to begin anew
	if n := len(rest); n < 20 || n > 30 {
		t.Errorf("%d of 40 came later: the consumer was sent 10 to 20", n)
	}
	for _, m := range rest {
		if seen[m.Payload] || m.Attempt != 1 {
			t.Errorf("%+v came again", m)
		}
	}
	w.silent("once", 1500*time.Millisecond)
	w.settles("once", depth{})
	if n := len(w.get("least", 40)); n != 40 {
		t.Errorf("at least once, %d of 40 came", n)
	}
}

// TestRuleByCommand_Breaker has all workers nack for several lock timeouts: no dead letter comes of it; when they work
// again all is done, and only what is truly bad is dead.
func TestRuleByCommand_Breaker(t *testing.T) {
	const n = 60
	w := newWorld(t)
	w.make("g", "--max-deliveries", "3", "--lock-timeout", "1s")
	w.make("off", "--max-deliveries", "3", "--lock-timeout", "1s", "--breaker", "off", "--no-nack-throttle")
	w.say(numbers(1, n)...)
	w.server.Run("", "consume", queue, "g", "--nack-every", "1", "--timeout", "5s")
	w.server.Must("", "consume", queue, "off", "--nack-every", "1", "--count", fmt.Sprint(3*n), "--timeout", "50s")
	w.letters("g", 0)
	w.letters("off", n)
	type breaker struct {
		Ms int64 `json:"breaker_open_ms"`
	}
	w.looks(func() bool {
		return process.Decode[breaker](t, w.server.Ask("depth", queue, "g", "-o", "json"))[0].Ms >= 1000
	}, func() string { return "its breaker is not open" })
	w.server.Must("", "update", "group", queue, "g", "--lock-timeout", "30s") // so long may a command take now
	process.Eventually(t, "the group's host knows", func() bool {
		c := w.consumer("g")
		closeConsumer(c)
		return c.LockTimeout() == 30*time.Second
	})
	got := make(map[string]bool)
	for len(got) < n-1 { // the workers are back, and 7 is bad
		for _, m := range w.get("g", 1, "--ack", "tokens") {
			if m.Payload == "7" {
				w.server.Must("", "nack", m.Token, "--reason", "truly bad")
				continue
			}
			got[m.Payload] = true
			w.server.Must("", "ack", m.Token)
		}
	}
	for m := w.get("g", 1, "--ack", "tokens", "--idle", "3s"); len(m) > 0; m = w.get("g", 1, "--ack", "tokens", "--idle", "3s") {
		w.server.Must("", "nack", m[0].Token, "--reason", "truly bad")
	}
	if l := w.letters("g", 1)[0]; l.Payload != "7" || l.Error != "truly bad" {
		t.Errorf("dead letter %+v", l)
	}
	w.settles("g", depth{})
}

// TestRuleByCommand_NackThrottle has a consumer nack all it gets, in a group that slows it down and in one that does
// not.
func TestRuleByCommand_NackThrottle(t *testing.T) {
	w := newWorld(t)
	w.make("slowed", "--breaker", "off", "--max-deliveries", "unlimited")
	w.make("free", "--breaker", "off", "--max-deliveries", "unlimited", "--no-nack-throttle")
	w.say(numbers(1, 100)...)
	// 20, and then tens after pauses of 50 ms, 100 ms … 3.2 s: some more than 100 within 6 s, 500 after two minutes.
	began := time.Now()
	got := strings.Count(w.server.Run("", "consume", queue, "slowed", "--prefetch", "20", "--nack-every", "1", "--timeout", "4s").Stdout, "\n")
	if most := 120 + 10*int(time.Since(began)/(3*time.Second)); got < 20 || got > most {
		t.Errorf("the slowed one got %d in %s, want 20 … %d", got, time.Since(began), most)
	}
	w.server.Must("", "consume", queue, "free", "--nack-every", "1", "--count", "500", "--timeout", "50s")
	w.server.Must("", "consume", queue, "slowed", "--count", fmt.Sprint(100), "--timeout", "30s") // who acks is not slowed down
	w.settles("slowed", depth{})
}

// TestRuleByCommand_OutstandingLimit has a consumer settle nothing of more than may be outstanding: it gets no more,
// and another group gets all.
func TestRuleByCommand_OutstandingLimit(t *testing.T) {
	const limit, n = 10_000, 10_300
	w := newWorld(t)
	w.make("greedy", "--lock-timeout", "10m")
	w.make("calm")
	w.say(numbers(1, n)...)
	h := w.hold("greedy", "--ack", "none")
	w.holds(h, limit)
	w.settles("greedy", depth{InFlight: limit, Ready: n - limit})
	w.server.Must("", "consume", queue, "calm", "--count", fmt.Sprint(n), "--timeout", "30s")
	if got := len(h.held()); got != limit {
		t.Errorf("it has %d messages, want %d", got, limit)
	}
	if out := w.server.Must("", "why-stuck", queue, "greedy", "-o", "json"); !strings.Contains(out, `in_flight`) {
		t.Errorf("why-stuck says %s", out)
	}
}
