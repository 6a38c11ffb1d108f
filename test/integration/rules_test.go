package integration

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/test/process"
)

// The tests TestRuleByCommand_… are the rows of the table of delivery rules in docs/operations/rules.md, with the
// binary only: a server, and commands.

// shown is a line of `columba consume -o json`.
type shown struct {
	Payload, Token, Extent string
	Seq                    core.Seq
	Attempt                int
}

// make creates a group that begins with the first message.
func (w *world) make(group string, flags ...string) {
	w.t.Helper()
	w.server.Must("", append([]string{"create", "group", queue, group, "--start", "earliest"}, flags...)...)
}

// say publishes lines.
func (w *world) say(lines ...string) {
	w.t.Helper()
	w.server.Must(strings.Join(lines, "\n")+"\n", "publish", queue)
}

// get consumes n messages by a command.
func (w *world) get(group string, n int, flags ...string) []shown {
	w.t.Helper()
	args := append([]string{"consume", queue, group, "-o", "json", "--timeout", "60s", "--count", fmt.Sprint(n)}, flags...)
	return process.Decode[shown](w.t, w.server.Must("", args...))
}

// one consumes a message, which has to be that one.
func (w *world) one(group, payload string, attempt int, flags ...string) shown {
	w.t.Helper()
	got := w.get(group, 1, flags...)
	if len(got) != 1 || got[0].Payload != payload || got[0].Attempt != attempt {
		w.t.Fatalf("group %s got %+v, want %q with attempt %d", group, got, payload, attempt)
	}
	return got[0]
}

// silent checks that a command gets nothing for a while.
func (w *world) silent(group string, d time.Duration) {
	w.t.Helper()
	if out := w.server.Must("", "consume", queue, group, "-o", "json", "--idle", d.String()); out != "" {
		w.t.Fatalf("group %s got %s; want nothing", group, out)
	}
}

// looks runs commands until they say what is wanted, less and less often: each look is a process.
func (w *world) looks(ok func() bool, what func() string) {
	w.t.Helper()
	tick := 100 * time.Millisecond
	for end := time.Now().Add(process.Patience); !ok(); tick = min(2*tick, time.Second) {
		pause(tick)
		if time.Now().After(end) {
			w.t.Fatalf("%s: not within %s", what(), process.Patience)
		}
	}
}

// settles waits until a group's depth is that.
func (w *world) settles(group string, want depth) {
	w.t.Helper()
	var got depth
	w.looks(func() bool { got = w.depth(group); return got == want }, func() string {
		return fmt.Sprintf("group %s is %+v, want %+v", group, got, want)
	})
}

// stuck waits until why-stuck gives that reason.
func (w *world) stuck(group, reason string) {
	w.t.Helper()
	var out string
	w.looks(func() bool {
		out = w.server.Ask("why-stuck", queue, group, "-o", "json")
		return strings.Contains(out, `"reason":"`+reason+`"`)
	}, func() string { return fmt.Sprintf("group %s: why-stuck says %s, want %s", group, out, reason) })
}

// after checks that something did not come too early; a millisecond is the server's unit. Tests in virtual time show
// that it does not come late: here the machine may have other work.
func (w *world) after(what string, began time.Time, least time.Duration) {
	w.t.Helper()
	if took := time.Since(began); took < least-time.Millisecond {
		w.t.Errorf("%s after %s, want %s at least", what, took, least)
	}
}

// wrong runs a command that has to be refused for what it says.
func (w *world) wrong(args ...string) {
	w.t.Helper()
	if r := w.server.Run("", args...); r.Code != core.ExitUsage {
		w.t.Errorf("columba %s: exit code %d (%s), want %d", strings.Join(args, " "), r.Code, r.Stderr, core.ExitUsage)
	}
}

// holder is a command that takes messages and settles none.
type holder struct {
	*process.Command
	mu  sync.Mutex
	got []shown
}

func (w *world) hold(group string, flags ...string) *holder {
	w.t.Helper()
	h := &holder{}
	h.Command = w.server.Launch(nil, func(line []byte) {
		m := process.Decode[shown](w.t, string(line))
		h.mu.Lock()
		defer h.mu.Unlock()
		h.got = append(h.got, m...)
	}, append([]string{"consume", queue, group, "-o", "json"}, flags...)...)
	return h
}

func (h *holder) held() []shown {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.got)
}

// holds waits until it has n messages.
func (w *world) holds(h *holder, n int) []shown {
	w.t.Helper()
	process.EventuallyOr(w.t, process.Patience, func() bool { return len(h.held()) >= n }, func() string {
		return fmt.Sprintf("%d messages are held, want %d", len(h.held()), n)
	})
	return h.held()
}

func TestRuleByCommand_LockTimeout(t *testing.T) {
	w := newWorld(t)
	for _, lock := range []string{"999ms", "12h1s"} {
		w.wrong("create", "group", queue, "wrong", "--lock-timeout", lock)
	}
	w.make("g", "--lock-timeout", "6s") // so long may the next command take
	w.say("a")
	began := time.Now()
	w.one("g", "a", 1, "--ack", "none")
	second := w.one("g", "a", 2, "--ack", "tokens")
	w.after("it came again", began, 6*time.Second)
	began = time.Now()
	w.server.Must("", "extend", second.Token, "8s")
	third := w.one("g", "a", 3, "--ack", "tokens")
	w.after("extended, it came again", began, 8*time.Second)
	pause(6100 * time.Millisecond)
	w.server.Must("", "ack", third.Token) // late, and in time all the same
	w.silent("g", 6500*time.Millisecond)
	w.settles("g", depth{})
}

// TestRuleByCommand_MaxDeliveries has a message whose consumer dies of it each time, and others that do not suffer. The
// attempt that a crash interrupts does not count.
func TestRuleByCommand_MaxDeliveries(t *testing.T) {
	const most = 3
	crashing(t, func(w *world, crash func()) {
		w.make("g", "--lock-timeout", "4s", "--max-deliveries", fmt.Sprint(most))
		w.say("poison")
		deliveries := most
		if strings.HasSuffix(w.t.Name(), "/killed") {
			deliveries++
		}
		for attempt := 1; attempt <= deliveries; attempt++ {
			h := w.hold("g", "--ack", "none")
			if m := w.holds(h, 1)[0]; m.Payload != "poison" || m.Attempt != attempt {
				w.t.Fatalf("the consumer got %+v, want poison with attempt %d", m, attempt)
			}
			h.Kill()
			if attempt == 1 {
				crash()
			}
		}
		w.say("good")
		w.one("g", "good", 1)
		l := w.letters("g", 1)[0]
		if l.Attempts != deliveries || l.Reason != "lock_timeout" || l.Payload != "poison" {
			w.t.Errorf("dead letter %+v, want %d attempts and an expired lock", l, deliveries)
		}
		w.silent("g", 4500*time.Millisecond)
	})
}

func TestRuleByCommand_Isolation(t *testing.T) {
	w := newWorld(t)
	w.make("g", "--lock-timeout", "6s", "--max-deliveries", "2") // so long may a command take
	w.say("a", "b", "poison", "d")
	h := w.hold("g", "--ack", "none")
	w.holds(h, 4)
	h.Kill()
	seen, beside := map[string]bool{}, 0
	both := []*holder{w.hold("g", "--ack", "tokens"), w.hold("g", "--ack", "tokens")}
	acked := make([]int, len(both))
	for end := time.Now().Add(30 * time.Second); len(seen) < 4 && time.Now().Before(end); pause(100 * time.Millisecond) {
		for i, h := range both { // each gets one after another, as each is settled, and then nothing beside the poison
			got := h.held()
			if len(got) > acked[i]+1 {
				beside++
			}
			for _, m := range got[acked[i]:] {
				seen[m.Payload] = true
				if m.Attempt != 2 {
					t.Errorf("%+v, want attempt 2", m)
				}
				if m.Payload == "poison" {
					break
				}
				w.server.Must("", "ack", m.Token)
				acked[i]++
			}
		}
	}
	if len(seen) != 4 || beside > 0 {
		t.Errorf("%v came again, want all four; %d times one came beside another", seen, beside)
	}
	for _, h := range both {
		h.Kill()
	}
	if l := w.letters("g", 1)[0]; l.Payload != "poison" || l.Attempts != 2 {
		t.Errorf("dead letter %+v, want the poison after 2 attempts", l)
	}
	w.settles("g", depth{})
}

func TestRuleByCommand_Nack(t *testing.T) {
	w := newWorld(t)
	w.make("g")
	w.make("backoff", "--backoff", "1s,2,10s")
	w.say("a")
	token := w.one("g", "a", 1, "--ack", "tokens").Token
	began := time.Now()
	w.server.Must("", "nack", token, "--delay", "2s", "--reason", "upstream is down")
	if out := w.server.Must("", "why-stuck", queue, "g", "-o", "json"); !strings.Contains(out, `"last_error":"upstream is down"`) || !strings.Contains(out, `"last_failure":"nack"`) {
		t.Errorf("why-stuck says %s", out)
	}
	token = w.one("g", "a", 2, "--ack", "tokens").Token
	w.after("it came again", began, 2*time.Second)
	w.server.Must("", "nack", token)
	w.one("g", "a", 3)

	began = time.Now()
	w.server.Must("", "nack", w.one("backoff", "a", 1, "--ack", "tokens").Token)
	w.server.Must("", "nack", w.one("backoff", "a", 2, "--ack", "tokens").Token)
	w.one("backoff", "a", 3)
	w.after("by the backoff it came twice", began, 3*time.Second)
}

// TestRuleByCommand_Reject makes a dead letter of a message that another process holds.
func TestRuleByCommand_Reject(t *testing.T) {
	w := newWorld(t)
	w.make("g")
	w.say("a")
	w.server.Must("", "reject", w.one("g", "a", 1, "--ack", "tokens").Token, "--reason", "not a trip")
	if l := w.letters("g", 1)[0]; l.Attempts != 1 || l.Reason != "rejected" || l.Error != "not a trip" {
		t.Errorf("dead letter %+v, want one attempt, rejected", l)
	}
	w.silent("g", 500*time.Millisecond)
}

// TestRuleByCommand_ShortWaits kills the server while a message waits: it comes at its time, and its attempts are
// known.
func TestRuleByCommand_ShortWaits(t *testing.T) {
	w := newWorld(t)
	w.make("g")
	w.say("a")
	token := w.one("g", "a", 1, "--ack", "tokens").Token
	began := time.Now()
	w.server.Must("", "nack", token, "--delay", "4s")
	w.crash()
	w.one("g", "a", 2)
	w.after("it came again", began, 4*time.Second)
}

// TestRuleByCommand_LongWaits kills the server while a message is parked: it is listed, counted, and comes back with
// its next attempt, not earlier.
func TestRuleByCommand_LongWaits(t *testing.T) {
	const wait = 32 * time.Second
	w := newWorld(t)
	w.make("g")
	w.say("a")
	token := w.one("g", "a", 1, "--ack", "tokens").Token
	began := time.Now()
	w.server.Must("", "nack", token, "--delay", wait.String(), "--reason", "later")
	w.settles("g", depth{Delayed: 1})
	type parked struct {
		Attempts int    `json:"attempts"`
		Error    string `json:"error"`
	}
	var got []parked
	w.looks(func() bool { // in memory, on its way to the retry queue, or there
		got = process.Decode[parked](t, w.server.Ask("list", "delayed", queue, "g", "-o", "json"))
		return len(got) > 0
	}, func() string { return "no delayed message is listed" })
	if len(got) != 1 || got[0] != (parked{1, "later"}) {
		t.Errorf("parked are %+v", got)
	}
	w.counted("g", "retry_queued", 1)
	w.crash()
	w.settles("g", depth{Delayed: 1})
	w.one("g", "a", 2)
	w.after("it came again", began, wait)
	w.settles("g", depth{})
}

// TestRuleByCommand_NotWritable takes the only input host away: what is rejected waits, the rest goes on, and it is
// buried once.
func TestRuleByCommand_NotWritable(t *testing.T) {
	t.Parallel()
	c := process.StartCluster(t, process.Layout{Stores: 1, Inputs: 1, Outputs: 1})
	w := &world{t: t, server: c.Controller}
	w.server.Must("", "create", "queue", queue, "--replicas", "1", "--min-replicas", "1")
	w.make("g")
	w.say(numbers(1, 10)...)
	c.Inputs[0].Kill()
	token := w.one("g", "1", 1, "--ack", "tokens").Token
	w.server.Must("", "reject", token, "--reason", "bad")
	if got := w.get("g", 9); got[0].Payload != "2" || got[8].Payload != "10" {
		t.Errorf("the rest is %+v", got)
	}
	w.stuck("g", "dlq_not_writable")
	c.Inputs[0].Start()
	w.stuck("g", "nothing_waits")
	if l := w.letters("g", 1)[0]; l.Payload != "1" || l.Error != "bad" {
		t.Errorf("dead letter %+v", l)
	}
}

// TestRuleByCommand_Credits stops a consumer's process: it holds no more than it asked for, and others get the rest.
func TestRuleByCommand_Credits(t *testing.T) {
	const n, prefetch = 50, 5
	w := newWorld(t)
	w.make("g")
	w.say("first")
	h := w.hold("g", "--prefetch", fmt.Sprint(prefetch))
	w.holds(h, 1)
	w.settles("g", depth{})
	h.Pause()
	w.say(numbers(1, n)...)
	var d, before depth
	w.looks(func() bool { before, d = d, w.depth("g"); return d.InFlight > 0 && d == before }, func() string { return "it was given nothing" })
	if d.InFlight > prefetch || d.InFlight+d.Ready != n {
		t.Errorf("%+v, want at most %d in flight", d, prefetch)
	}
	held := int(d.InFlight)
	w.get("g", n-held)
	w.settles("g", depth{InFlight: uint64(held)})
	h.Continue()
	w.settles("g", depth{})
	if got := w.holds(h, held+1); len(got) != held+1 { // acked when printed, which may be before it is read here
		t.Errorf("it got %d messages, want %d", len(got), held+1)
	}
}

// TestRuleByCommand_ConsumerGoesAway kills a consumer that holds messages: they stay locked until their timeout, and a
// token settles one meanwhile.
func TestRuleByCommand_ConsumerGoesAway(t *testing.T) {
	const n, lock = 20, 6 * time.Second
	w := newWorld(t)
	w.make("g", "--lock-timeout", lock.String())
	w.say(numbers(1, n)...)
	began := time.Now()
	h := w.hold("g", "--ack", "tokens")
	token := w.holds(h, n)[0].Token
	h.Kill()
	w.say("fresh")
	w.one("g", "fresh", 1)
	w.server.Must("", "ack", token)
	if d := w.depth("g"); time.Since(began) < lock && d != (depth{InFlight: n - 1}) {
		t.Errorf("%+v, want %d in flight", d, n-1)
	}
	for _, m := range w.get("g", n-1) {
		if m.Attempt != 2 || m.Payload == "1" {
			t.Errorf("%+v came again, want attempt 2, and not what was acked", m)
		}
	}
	w.after("they came again", began, lock)
	w.settles("g", depth{})
}
