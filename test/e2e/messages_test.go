package e2e

import (
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/test/process"
)

// message is a line of `consume -o json`.
type message struct {
	ID, Payload, Extent, Token, Enqueued, Key string
	PayloadBase64                             string `json:"payload_base64"`
	Seq, Attempt                              int
	Headers                                   map[string]string
}

// outcome is a line of `publish -o json`.
type outcome struct {
	Line           int
	ID, Receipt    string
	OK             bool
	Error, Outcome string
}

// numbers are the lines 1 … n, as seq prints them.
func numbers(first, last int) string {
	var b strings.Builder
	for i := first; i <= last; i++ {
		b.WriteString(strconv.Itoa(i) + "\n")
	}
	return b.String()
}

// count says how often each line is there.
func count(text string) map[string]int {
	seen := map[string]int{}
	for line := range strings.Lines(text) {
		seen[strings.TrimSuffix(line, "\n")]++
	}
	return seen
}

// wantAll checks that the numbers 1 … n are all there, each once unless again allows more.
func wantAll(t *testing.T, who string, seen map[string]int, n int, again bool) {
	t.Helper()
	missing, twice := 0, 0
	for i := 1; i <= n; i++ {
		switch c := seen[strconv.Itoa(i)]; {
		case c == 0:
			missing++
		case c > 1:
			twice++
		}
	}
	if missing > 0 || len(seen) > n || twice > 0 && !again {
		t.Errorf("%s: %d of %d lines are missing, %d came twice, %d are strangers", who, missing, n, twice, len(seen)-n+missing)
	}
}

// drain consumes until nothing is left, and counts the lines: on a busy machine nothing may come for longer than a
// consumer is idle.
func (s *harness) drain(queue, group string, seen map[string]int) {
	s.t.Helper()
	type depth struct {
		Ready, Delayed int
		InFlight       int `json:"in_flight"`
		Unknown        int `json:"unknown_extents"`
	}
	process.Eventually(s.t, "nothing is left for "+group, func() bool {
		if d := process.Decode[depth](s.t, s.Must("", "depth", queue, group, "-o", "json")); d[0] == (depth{}) {
			return true
		}
		for line, c := range count(s.Must("", "consume", queue, group, "--idle", "5s")) {
			seen[line] += c
		}
		return false
	})
}

func TestOneServer_EveryLineReachesEachGroup(t *testing.T) {
	const n, groups, consumers = 20000, 2, 3
	s := newHarness(t)
	s.Must("", "create", "queue", "/t/a")
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[string]map[string]int{}
	for g := range groups {
		group := "g" + strconv.Itoa(g)
		seen[group] = map[string]int{}
		s.Must("", "create", "group", "/t/a", group)
		for range consumers {
			wg.Go(func() {
				r := s.Run("", "consume", "/t/a", group, "--idle", "5s")
				if r.Code != 0 || strings.Contains(r.Stderr, "refused") {
					t.Errorf("consume: exit code %d: %s", r.Code, r.Stderr)
				}
				mu.Lock()
				defer mu.Unlock()
				for line, c := range count(r.Stdout) {
					seen[group][line] += c
				}
			})
		}
	}
	s.Must(numbers(1, n), "publish", "/t/a")
	wg.Wait()
	for group, lines := range seen {
		s.drain("/t/a", group, lines)
		wantAll(t, group, lines, n, false)
	}
}

func TestOneServer_NothingAcknowledgedIsLostByKill(t *testing.T) {
	const n, kills = 30000, 3
	s := newHarness(t)
	s.Must("", "create", "queue", "/t/a")
	s.Must("", "create", "group", "/t/a", "g")
	var published process.Result
	done := make(chan struct{})
	go func() {
		defer close(done)
		published = s.Run(numbers(1, n), "publish", "/t/a", "--rate", "6000", "-o", "json")
	}()
	for range kills {
		pause(time.Second)
		s.Kill()
		s.Start()
	}
	<-done
	acked := map[string]int{}
	for _, o := range process.Decode[outcome](t, published.Stdout) {
		if o.OK {
			acked[strconv.Itoa(o.Line)]++
		}
	}
	if len(acked) < n/2 {
		t.Errorf("only %d of %d messages were acknowledged: %s", len(acked), n, published.Stderr)
	}
	got := map[string]int{}
	s.drain("/t/a", "g", got)
	missing, twice := 0, 0
	for line := range acked {
		if got[line] == 0 {
			missing++
		}
	}
	for _, c := range got {
		twice += c - 1
	}
	if missing > 0 {
		t.Errorf("%d of %d acknowledged messages are missing", missing, len(acked))
	}
	t.Logf("%d acknowledged, %d delivered, %d of them again", len(acked), len(got), twice)
}

// pause lets processes under test run on: there is nothing to wait for but time.
func pause(d time.Duration) { <-time.After(d) }

func TestOneServer_KilledConsumerLosesNothing(t *testing.T) {
	const n = 20000
	s := newHarness(t)
	s.Must("", "create", "queue", "/t/a")
	s.Must("", "create", "group", "/t/a", "g", "--start", "earliest", "--lock-timeout", "2s")
	s.Must(numbers(1, n), "publish", "/t/a")
	seen := map[string]int{}
	first := s.command("consume", "/t/a", "g")
	out, err := first.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	buf := make([]byte, 4096)
	for strings.Count(text.String(), "\n") < n/4 {
		k, err := out.Read(buf)
		if err != nil {
			t.Fatalf("consume ended after %d lines: %v", strings.Count(text.String(), "\n"), err)
		}
		text.Write(buf[:k])
	}
	first.Process.Kill()
	for {
		k, err := out.Read(buf)
		text.Write(buf[:k])
		if err != nil {
			break
		}
	}
	first.Wait()
	whole := text.String()[:strings.LastIndexByte(text.String(), '\n')+1]
	maps.Copy(seen, count(whole))
	s.drain("/t/a", "g", seen)
	wantAll(t, "both consumers", seen, n, true)
}

func TestOneServer_Payloads(t *testing.T) {
	s := newHarness(t)
	s.Must("", "create", "queue", "/t/a", "--max-message", "1KiB")
	s.Must("", "create", "group", "/t/a", "g", "--start", "earliest")
	r := s.Run("plain\n\n\xff\xfe\n"+strings.Repeat("x", 1025)+"\nlast", "publish", "/t/a", "-o", "json", "--key", "k", "--header", "a=1", "--id-from-line")
	if r.Code != 1 {
		t.Errorf("publish: exit code %d, want 1: %s", r.Code, r.Stderr)
	}
	bad := 0
	for _, o := range process.Decode[outcome](t, r.Stdout) {
		if !o.OK {
			bad++
			if o.Line != 4 || o.Error != "too_large" || o.Outcome != "failed" {
				t.Errorf("outcome %+v, want line 4 too large", o)
			}
		}
	}
	if bad != 1 {
		t.Errorf("%d lines failed, want the one that is too large", bad)
	}
	got := map[string]message{}
	for _, m := range process.Decode[message](t, s.Must("", "consume", "/t/a", "g", "--count", "4", "--timeout", "20s", "-o", "json")) {
		got[m.Payload+"|"+m.PayloadBase64] = m
	}
	for _, want := range []string{"plain|", "|", "|//4=", "last|"} {
		m, ok := got[want]
		if !ok || m.Key != "k" || m.Headers["a"] != "1" || m.Attempt != 1 || m.Seq == 0 || m.ID == "" || m.Enqueued == "" {
			t.Errorf("payload %q: %+v", want, m)
		}
	}
}

func TestOneServer_TokensSettleFromOutside(t *testing.T) {
	s := newHarness(t)
	s.Must("", "create", "queue", "/t/a")
	s.Must("", "create", "group", "/t/a", "g", "--start", "earliest", "--lock-timeout", "10m")
	s.Must("ack\nnack\nreject\nextend\n", "publish", "/t/a")
	tokens := map[string]string{}
	for _, m := range process.Decode[message](t, s.Must("", "consume", "/t/a", "g", "--count", "4", "--timeout", "20s", "--ack", "tokens", "-o", "json")) {
		tokens[m.Payload] = m.Token
	}
	if len(tokens) != 4 || tokens["ack"] == "" {
		t.Fatalf("tokens %q, want one for each message", tokens)
	}
	s.Must("", "ack", tokens["ack"])
	s.Must("", "extend", tokens["extend"], "1m")
	s.Must("", "reject", tokens["reject"], "--reason", "not wanted")
	started := time.Now()
	s.Must("", "nack", tokens["nack"], "--delay", "2s", "--reason", "later")
	again := process.Decode[message](t, s.Must("", "consume", "/t/a", "g", "--count", "1", "--timeout", "20s", "-o", "json"))
	if took := time.Since(started); len(again) != 1 || again[0].Payload != "nack" || again[0].Attempt != 2 || took < 2*time.Second {
		t.Errorf("after %s: %+v, want the given-back message as attempt 2 after 2s", took, again)
	}
	var letters []deadLetter
	process.Eventually(t, "a dead letter", func() bool {
		letters = process.Decode[deadLetter](t, s.Must("", "dlq", "list", "/t/a", "g", "-o", "json"))
		return len(letters) > 0
	})
	if len(letters) != 1 || letters[0].Payload != "reject" || !strings.Contains(letters[0].Error+letters[0].Reason, "not wanted") {
		t.Errorf("dead letters %+v, want the rejected one with its reason", letters)
	}
	if r := s.Run("", "ack", tokens["ack"][:len(tokens["ack"])-4]+"AAAA"); r.Code != 2 && r.Code != 4 {
		t.Errorf("forged token: exit code %d: %s", r.Code, r.Stderr)
	}
	if r := s.Run("", "nack", tokens["nack"]); r.Code != 4 || !strings.Contains(r.Stderr, "(stale)") {
		t.Errorf("old token: exit code %d: %s", r.Code, r.Stderr)
	}
}

// deadLetter is a line of `dlq list -o json`.
type deadLetter struct {
	ID, Receipt, Payload, Reason, Error string
	FirstEnqueued                       string `json:"first_enqueued"`
	DeadSince                           string `json:"dead_since"`
	LastConsumer                        string `json:"last_consumer"`
	Attempts                            int
}

func TestOneServer_LockTimeoutAndDeadLetters(t *testing.T) {
	s := newHarness(t)
	s.Must("", "create", "queue", "/t/a")
	s.Must("", "create", "group", "/t/a", "g", "--start", "earliest", "--lock-timeout", "1s", "--max-deliveries", "3")
	s.Must("poison\n", "publish", "/t/a")
	for attempt := 1; attempt <= 3; attempt++ {
		got := process.Decode[message](t, s.Must("", "consume", "/t/a", "g", "--count", "1", "--timeout", "20s", "--ack", "none", "-o", "json"))
		if len(got) != 1 || got[0].Attempt != attempt {
			t.Fatalf("delivery %+v, want attempt %d", got, attempt)
		}
	}
	var letters []deadLetter
	check := func() bool {
		letters = process.Decode[deadLetter](t, s.Must("", "dlq", "list", "/t/a", "g", "-o", "json"))
		return len(letters) > 0
	}
	process.Eventually(t, "a dead letter", check)
	before := letters[0]
	if before.Attempts != 3 || before.Payload != "poison" || before.Reason == "" || before.FirstEnqueued == "" || before.DeadSince == "" {
		t.Errorf("dead letter %+v lacks its history", before)
	}
	if got := s.Must("", "consume", "/t/a", "g", "--idle", "1500ms"); got != "" {
		t.Errorf("the dead message was delivered again: %q", got)
	}
	s.Kill()
	s.Start()
	process.Eventually(t, "the dead letter after a restart", check)
	if len(letters) != 1 || letters[0] != before {
		t.Errorf("after a restart %+v, want %+v", letters, before)
	}
	if show := s.Must("", "dlq", "show", "/t/a", "g", "--id", before.ID); !strings.Contains(show, "poison") {
		t.Errorf("dlq show lacks the payload:\n%s", show)
	}
}

func TestOneServer_SealRollsOn(t *testing.T) {
	s := newHarness(t)
	s.Must("", "create", "queue", "/t/a")
	s.Must("", "create", "group", "/t/a", "g", "--start", "earliest")
	type extent struct {
		Extent, Queue, State string
		LastSeq              int `json:"last_seq"`
	}
	s.Must(numbers(1, 100), "publish", "/t/a")
	for _, e := range process.Decode[extent](t, s.Must("", "list", "extents", "/t/a", "-o", "json")) {
		if e.State == "open" {
			s.Must("", "seal", "/t/a", e.Extent, "--dry-run")
			s.Must("", "seal", "/t/a", e.Extent)
			if r := s.Run("", "seal", "/t/a", e.Extent); r.Code != 4 || !strings.Contains(r.Stderr, "sealed already at") {
				t.Errorf("seal again: exit code %d: %s", r.Code, r.Stderr)
			}
			if r := s.Run("", "seal", "/t/a/g.dlq", e.Extent); r.Code != 3 {
				t.Errorf("seal an extent of another queue: exit code %d: %s", r.Code, r.Stderr)
			}
		}
	}
	s.Must(numbers(101, 200), "publish", "/t/a")
	wantAll(t, "g", count(s.Must("", "consume", "/t/a", "g", "--count", "200", "--timeout", "30s")), 200, false)
	total := 0
	for _, e := range process.Decode[extent](t, s.Must("", "list", "extents", "/t/a", "-o", "json")) {
		if e.State == "sealed" {
			total += e.LastSeq
		}
		if e.Queue != "/t/a" {
			t.Errorf("extent %s is listed with queue %q", e.Extent, e.Queue)
		}
	}
	if total < 100 {
		t.Errorf("sealed extents hold %d messages, want the first 100", total)
	}
	if got := len(strings.Split(strings.TrimSpace(s.Must("", "peek", "/t/a", "--limit", "0", "-o", "json")), "\n")); got != 200 {
		t.Errorf("peek shows %d messages, want 200", got)
	}
}
