package e2e

import (
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
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

// drain consumes until nothing is left, and counts the lines: on a busy machine nothing may come for longer than a consumer is idle.
func (s *server) drain(queue, group string, seen map[string]int) {
	s.t.Helper()
	type depth struct {
		Ready, Delayed int
		InFlight       int `json:"in_flight"`
	}
	eventually(s.t, "nothing is left for "+group, func() bool {
		if d := decode[depth](s.t, s.must("", "depth", queue, group, "-o", "json")); d[0] == (depth{}) {
			return true
		}
		for line, c := range count(s.must("", "consume", queue, group, "--idle", "5s")) {
			seen[line] += c
		}
		return false
	})
}

func TestOneServer_EveryLineReachesEachGroup(t *testing.T) {
	const n, groups, consumers = 20000, 2, 3
	s := startServer(t)
	s.must("", "create", "queue", "/t/a")
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[string]map[string]int{}
	for g := range groups {
		group := "g" + strconv.Itoa(g)
		seen[group] = map[string]int{}
		s.must("", "create", "group", "/t/a", group)
		for range consumers {
			wg.Go(func() {
				r := s.run("", "consume", "/t/a", group, "--idle", "5s")
				if r.code != 0 || strings.Contains(r.stderr, "refused") {
					t.Errorf("consume: exit code %d: %s", r.code, r.stderr)
				}
				mu.Lock()
				defer mu.Unlock()
				for line, c := range count(r.stdout) {
					seen[group][line] += c
				}
			})
		}
	}
	s.must(numbers(1, n), "publish", "/t/a")
	wg.Wait()
	for group, lines := range seen {
		s.drain("/t/a", group, lines)
		wantAll(t, group, lines, n, false)
	}
}

func TestOneServer_NothingAcknowledgedIsLostByKill(t *testing.T) {
	const n, kills = 30000, 3
	s := startServer(t)
	s.must("", "create", "queue", "/t/a")
	s.must("", "create", "group", "/t/a", "g")
	var published result
	done := make(chan struct{})
	go func() {
		defer close(done)
		published = s.run(numbers(1, n), "publish", "/t/a", "--rate", "6000", "-o", "json")
	}()
	for range kills {
		pause(time.Second)
		s.kill()
		s.start()
	}
	<-done
	acked := map[string]int{}
	for _, o := range decode[outcome](t, published.stdout) {
		if o.OK {
			acked[strconv.Itoa(o.Line)]++
		}
	}
	if len(acked) < n/2 {
		t.Errorf("only %d of %d messages were acknowledged: %s", len(acked), n, published.stderr)
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
	s := startServer(t)
	s.must("", "create", "queue", "/t/a")
	s.must("", "create", "group", "/t/a", "g", "--start", "earliest", "--lock-timeout", "2s")
	s.must(numbers(1, n), "publish", "/t/a")
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
	s := startServer(t)
	s.must("", "create", "queue", "/t/a", "--max-message", "1KiB")
	s.must("", "create", "group", "/t/a", "g", "--start", "earliest")
	r := s.run("plain\n\n\xff\xfe\n"+strings.Repeat("x", 1025)+"\nlast", "publish", "/t/a", "-o", "json", "--key", "k", "--header", "a=1", "--id-from-line")
	if r.code != 1 {
		t.Errorf("publish: exit code %d, want 1: %s", r.code, r.stderr)
	}
	bad := 0
	for _, o := range decode[outcome](t, r.stdout) {
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
	for _, m := range decode[message](t, s.must("", "consume", "/t/a", "g", "--count", "4", "--timeout", "20s", "-o", "json")) {
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
	s := startServer(t)
	s.must("", "create", "queue", "/t/a")
	s.must("", "create", "group", "/t/a", "g", "--start", "earliest", "--lock-timeout", "10m")
	s.must("ack\nnack\nreject\nextend\n", "publish", "/t/a")
	tokens := map[string]string{}
	for _, m := range decode[message](t, s.must("", "consume", "/t/a", "g", "--count", "4", "--timeout", "20s", "--ack", "tokens", "-o", "json")) {
		tokens[m.Payload] = m.Token
	}
	if len(tokens) != 4 || tokens["ack"] == "" {
		t.Fatalf("tokens %q, want one for each message", tokens)
	}
	s.must("", "ack", tokens["ack"])
	s.must("", "extend", tokens["extend"], "1m")
	s.must("", "reject", tokens["reject"], "--reason", "not wanted")
	started := time.Now()
	s.must("", "nack", tokens["nack"], "--delay", "2s", "--reason", "later")
	again := decode[message](t, s.must("", "consume", "/t/a", "g", "--count", "1", "--timeout", "20s", "-o", "json"))
	if took := time.Since(started); len(again) != 1 || again[0].Payload != "nack" || again[0].Attempt != 2 || took < 2*time.Second {
		t.Errorf("after %s: %+v, want the given-back message as attempt 2 after 2s", took, again)
	}
	var letters []deadLetter
	eventually(t, "a dead letter", func() bool {
		letters = decode[deadLetter](t, s.must("", "dlq", "list", "/t/a", "g", "-o", "json"))
		return len(letters) > 0
	})
	if len(letters) != 1 || letters[0].Payload != "reject" || !strings.Contains(letters[0].Error+letters[0].Reason, "not wanted") {
		t.Errorf("dead letters %+v, want the rejected one with its reason", letters)
	}
	if r := s.run("", "ack", tokens["ack"][:len(tokens["ack"])-4]+"AAAA"); r.code != 2 && r.code != 4 {
		t.Errorf("forged token: exit code %d: %s", r.code, r.stderr)
	}
	if r := s.run("", "nack", tokens["nack"]); r.code != 4 || !strings.Contains(r.stderr, "(stale)") {
		t.Errorf("old token: exit code %d: %s", r.code, r.stderr)
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
	s := startServer(t)
	s.must("", "create", "queue", "/t/a")
	s.must("", "create", "group", "/t/a", "g", "--start", "earliest", "--lock-timeout", "1s", "--max-deliveries", "3")
	s.must("poison\n", "publish", "/t/a")
	for attempt := 1; attempt <= 3; attempt++ {
		got := decode[message](t, s.must("", "consume", "/t/a", "g", "--count", "1", "--timeout", "20s", "--ack", "none", "-o", "json"))
		if len(got) != 1 || got[0].Attempt != attempt {
			t.Fatalf("delivery %+v, want attempt %d", got, attempt)
		}
	}
	var letters []deadLetter
	check := func() bool {
		letters = decode[deadLetter](t, s.must("", "dlq", "list", "/t/a", "g", "-o", "json"))
		return len(letters) > 0
	}
	eventually(t, "a dead letter", check)
	before := letters[0]
	if before.Attempts != 3 || before.Payload != "poison" || before.Reason == "" || before.FirstEnqueued == "" || before.DeadSince == "" {
		t.Errorf("dead letter %+v lacks its history", before)
	}
	if got := s.must("", "consume", "/t/a", "g", "--idle", "1500ms"); got != "" {
		t.Errorf("the dead message was delivered again: %q", got)
	}
	s.kill()
	s.start()
	eventually(t, "the dead letter after a restart", check)
	if len(letters) != 1 || letters[0] != before {
		t.Errorf("after a restart %+v, want %+v", letters, before)
	}
	if show := s.must("", "dlq", "show", "/t/a", "g", "--id", before.ID); !strings.Contains(show, "poison") {
		t.Errorf("dlq show lacks the payload:\n%s", show)
	}
}

func TestOneServer_SealRollsOn(t *testing.T) {
	s := startServer(t)
	s.must("", "create", "queue", "/t/a")
	s.must("", "create", "group", "/t/a", "g", "--start", "earliest")
	type extent struct {
		Extent, Queue, State string
		LastSeq              int `json:"last_seq"`
	}
	s.must(numbers(1, 100), "publish", "/t/a")
	for _, e := range decode[extent](t, s.must("", "list", "extents", "/t/a", "-o", "json")) {
		if e.State == "open" {
			s.must("", "seal", "/t/a", e.Extent, "--dry-run")
			s.must("", "seal", "/t/a", e.Extent)
			if r := s.run("", "seal", "/t/a", e.Extent); r.code != 4 || !strings.Contains(r.stderr, "sealed already at") {
				t.Errorf("seal again: exit code %d: %s", r.code, r.stderr)
			}
			if r := s.run("", "seal", "/t/a/g.dlq", e.Extent); r.code != 3 {
				t.Errorf("seal an extent of another queue: exit code %d: %s", r.code, r.stderr)
			}
		}
	}
	s.must(numbers(101, 200), "publish", "/t/a")
	wantAll(t, "g", count(s.must("", "consume", "/t/a", "g", "--count", "200", "--timeout", "30s")), 200, false)
	total := 0
	for _, e := range decode[extent](t, s.must("", "list", "extents", "/t/a", "-o", "json")) {
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
	if got := len(strings.Split(strings.TrimSpace(s.must("", "peek", "/t/a", "--limit", "0", "-o", "json")), "\n")); got != 200 {
		t.Errorf("peek shows %d messages, want 200", got)
	}
}
