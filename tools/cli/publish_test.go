package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// fakePublisher acknowledges every message from its own goroutine, but for bodies that name an error.
type fakePublisher struct {
	mu     sync.Mutex
	got    []client.Message
	calls  chan func()
	closed chan struct{}
	keep   bool // remember what was published
}

func newFakePublisher() *fakePublisher {
	p := &fakePublisher{calls: make(chan func(), 1024), closed: make(chan struct{}), keep: true}
	go func() {
		defer close(p.closed)
		for call := range p.calls {
			call()
		}
	}()
	return p
}

func (p *fakePublisher) PublishAsync(ctx context.Context, m client.Message, done func(client.Receipt, error)) error {
	if string(m.Body) == "large" {
		return core.Errorf(core.CodeTooLarge, "message is too large")
	}
	seq := core.Seq(0)
	if p.keep {
		m.Body = bytes.Clone(m.Body)
		p.mu.Lock()
		p.got = append(p.got, m)
		seq = core.Seq(len(p.got))
		p.mu.Unlock()
	}
	var err error
	switch string(m.Body) {
	case "lost":
		err = core.Errorf(core.CodeUnknown, "the answer was lost")
	case "gone":
		err = core.Errorf(core.CodeUnavailable, "no input host")
	case "deleted":
		err = core.Errorf(core.CodeNotFound, "queue /t/a does not exist")
	case "full":
		err = core.Errorf(core.CodeNoSpace, "no space on h1")
	}
	p.calls <- func() { done(client.Receipt{ID: m.ID, Receipt: core.Receipt{Seq: seq}}, err) }
	return nil
}

func (p *fakePublisher) Close(ctx context.Context) error {
	close(p.calls)
	<-p.closed
	return ctx.Err()
}

func (p *fakePublisher) bodies() []string {
	var out []string
	for _, m := range p.got {
		out = append(out, string(m.Body))
	}
	return out
}

func publishCLI(p publisher, stdin io.Reader, args ...string) (stdout, stderr string, code int) {
	var out, talk bytes.Buffer
	a := &app{stdin: stdin, stdout: &out, stderr: &talk, fakePublisher: p}
	code = a.main(context.Background(), append([]string{"publish", "/t/a"}, args...))
	return out.String(), talk.String(), code
}

func TestPublish_Splits(t *testing.T) {
	for _, c := range []struct {
		name, stdin string
		args        []string
		want        []string
	}{
		{"lines", "a\nb\n\nc", nil, []string{"a", "b", "", "c"}},
		{"last line ends", "a\r\nb\n", nil, []string{"a\r", "b"}},
		{"nothing", "", nil, nil},
		{"nul", "a\nb\x00\x00c", []string{"--null"}, []string{"a\nb", "", "c"}},
		{"whole", "a\nb\n", []string{"--whole"}, []string{"a\nb\n"}},
		{"whole of nothing", "", []string{"--whole"}, []string{""}},
		{"binary", "\xff\x00\xfe\n", nil, []string{"\xff\x00\xfe"}},
		{"long", strings.Repeat("x", 3*readBuffer) + "\ny\n", nil, []string{strings.Repeat("x", 3*readBuffer), "y"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newFakePublisher()
			_, stderr, code := publishCLI(p, strings.NewReader(c.stdin), c.args...)
			if code != core.ExitOK {
				t.Errorf("exit code %d: %s", code, stderr)
			}
			if diff := cmp.Diff(c.want, p.bodies()); diff != "" {
				t.Errorf("published (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPublish_ReportsEachLine(t *testing.T) {
	p := newFakePublisher()
	input := io.MultiReader(strings.NewReader("a\nlarge\nlost\n"), strings.NewReader(strings.Repeat("x", core.MaxMaxMessage+1)), strings.NewReader("\nfull\nb\n"))
	stdout, stderr, code := publishCLI(p, input, "-o", "json")
	if code != core.ExitFailed {
		t.Errorf("exit code %d, want %d", code, core.ExitFailed)
	}
	got := map[int]string{}
	for line := range strings.Lines(stdout) {
		var v struct {
			Line           int
			OK             bool
			ID, Receipt    string
			Error, Outcome string
		}
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		got[v.Line] = fmt.Sprintf("%t %s %s", v.OK, v.Error, v.Outcome)
	}
	want := map[int]string{1: "true  ", 2: "false too_large failed", 3: "false unknown_outcome unknown", 4: "false too_large failed", 5: "false no_space failed", 6: "true  "}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	for _, want := range []string{"line 4: line has 16777217 bytes", "line 3: the answer was lost (unknown_outcome) – publish it again if", "2 messages published", "3 not stored, 1 unknown"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("stderr lacks %q:\n%s", want, stderr)
		}
	}
	if strings.Contains(stderr, "--max-message") {
		t.Errorf("it advises to raise a limit that is the largest:\n%s", stderr)
	}
}

func TestPublish_Attributes(t *testing.T) {
	p := newFakePublisher()
	_, stderr, code := publishCLI(p, strings.NewReader("a\na\nb\n"), "--key", "k", "--header", "x=1", "--header", "y=a=b", "--delay", "2s", "--id-from-line", "--expire", "1h")
	if code != core.ExitOK {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	m := p.got[0]
	if m.Key != "k" || m.Delay != 2*time.Second || m.Headers["x"] != "1" || m.Headers["y"] != "a=b" {
		t.Errorf("message %+v lacks what the flags said", m)
	}
	if left := time.Until(m.ExpireAt); left < 59*time.Minute || left > time.Hour {
		t.Errorf("it expires in %s, want an hour", left)
	}
	if p.got[0].ID != p.got[1].ID || p.got[0].ID == p.got[2].ID || p.got[0].ID.IsZero() {
		t.Errorf("ids %v %v %v: want the same for the same line only", p.got[0].ID, p.got[1].ID, p.got[2].ID)
	}
}

func TestPublish_AtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakePublisher()
		at := time.Now().Add(300 * 24 * time.Hour)
		if _, stderr, code := publishCLI(p, strings.NewReader("a\n"), "--at", at.Format(time.RFC3339)); code != core.ExitOK {
			t.Fatalf("exit code %d: %s", code, stderr)
		}
		if got := p.got[0].DeliverAt; !got.Equal(at) {
			t.Errorf("it is delivered at %s, want %s", got, at)
		}
		for _, args := range [][]string{
			{"--delay", "8785h"}, {"--delay", "-1s"}, {"--at", "tomorrow"}, {"--at", at.AddDate(1, 0, 0).Format(time.RFC3339)},
			{"--delay", "1s", "--at", at.Format(time.RFC3339)},
		} {
			if stdout, stderr, code := publishCLI(p, strings.NewReader("b\n"), args...); code != core.ExitUsage || stdout != "" || strings.Count(stderr, "\n") != 1 {
				t.Errorf("%q: exit code %d, stdout %q, stderr %q", args, code, stdout, stderr)
			}
		}
		if len(p.got) != 1 {
			t.Errorf("%d messages were published, want the one", len(p.got))
		}
	})
}

func TestPublish_Rate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakePublisher()
		started := time.Now()
		if _, stderr, code := publishCLI(p, strings.NewReader(strings.Repeat("x\n", 101)), "--rate", "10"); code != core.ExitOK {
			t.Fatalf("exit code %d: %s", code, stderr)
		}
		if took := time.Since(started); took < 10*time.Second || took > 11*time.Second {
			t.Errorf("101 messages at 10/s took %s, want 10s", took)
		}
	})
}

// endless is a stdin that stays open after its text.
type endless struct {
	text io.Reader
	open chan struct{}
}

func (e *endless) Read(b []byte) (int, error) {
	if n, err := e.text.Read(b); err == nil {
		return n, nil
	}
	<-e.open
	return 0, io.EOF
}

// TestPublish_LongestTimeout: nothing overflows with a timeout that stands for no end.
func TestPublish_LongestTimeout(t *testing.T) {
	p := newFakePublisher()
	_, stderr, code := publishCLI(p, strings.NewReader("a\nb\n"), "--timeout", time.Duration(math.MaxInt64).String())
	if code != core.ExitOK || len(p.bodies()) != 2 {
		t.Errorf("exit code %d after %d messages: %s", code, len(p.bodies()), stderr)
	}
}

func TestPublish_Interrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakePublisher()
		in := &endless{text: strings.NewReader("a\nb\n"), open: make(chan struct{})}
		ctx, cancel := context.WithCancel(context.Background())
		var out, talk bytes.Buffer
		a := &app{stdin: in, stdout: &out, stderr: &talk, fakePublisher: p}
		code := make(chan int)
		go func() { code <- a.main(ctx, []string{"publish", "/t/a"}) }()
		synctest.Wait()
		cancel()
		if got := <-code; got != core.ExitFailed {
			t.Errorf("exit code %d, want %d", got, core.ExitFailed)
		}
		if want := "interrupted: 2 messages acknowledged, 0 not stored, 0 unknown\n"; talk.String() != want {
			t.Errorf("stderr %q, want %q", talk.String(), want)
		}
		close(in.open)
		synctest.Wait()
	})
}

func TestPublish_GivesUpWhenTheServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakePublisher()
		in := &endless{text: strings.NewReader("a\ngone\n"), open: make(chan struct{})}
		var out, talk bytes.Buffer
		a := &app{stdin: in, stdout: &out, stderr: &talk, fakePublisher: p}
		started := time.Now()
		if code := a.main(context.Background(), []string{"publish", "/t/a"}); code != core.ExitFailed {
			t.Errorf("exit code %d, want %d", code, core.ExitFailed)
		}
		if took := time.Since(started); took < 30*time.Second || took > 31*time.Second {
			t.Errorf("gave up after %s, want 30s", took)
		}
		if want := "giving up after 2 messages"; !strings.Contains(talk.String(), want) {
			t.Errorf("stderr lacks %q:\n%s", want, talk.String())
		}
		close(in.open)
		synctest.Wait()
	})
}

// TestPublish_EndsWithItsQueue has the queue deleted under a pipe without an end, and under one that ended before its
// outcomes.
func TestPublish_EndsWithItsQueue(t *testing.T) {
	for _, open := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			p := newFakePublisher()
			in := &endless{text: strings.NewReader("a\ndeleted\n"), open: make(chan struct{})}
			if !open {
				close(in.open)
			}
			var out, talk bytes.Buffer
			a := &app{stdin: in, stdout: &out, stderr: &talk, fakePublisher: p}
			if code := a.main(t.Context(), []string{"publish", "/t/a"}); code != core.ExitNotFound {
				t.Errorf("exit code %d, want %d", code, core.ExitNotFound)
			}
			want := "1 message published to /t/a in 0s (+Inf/s)\n1 not stored, 0 unknown\nerror: queue /t/a does not exist (not_found) – see `columba list queues`\n"
			if talk.String() != want {
				t.Errorf("stderr %q, want %q", talk.String(), want)
			}
			if open {
				close(in.open)
			}
			synctest.Wait()
		})
	}
}

// TestTalk_Sentences has the user told of what the client library logs, not shown its log.
func TestTalk_Sentences(t *testing.T) {
	var talked bytes.Buffer
	log := slog.New(&talk{a: &app{stderr: &talked}})
	err := core.Errorf(core.CodeUnavailable, "connection reset")
	log.Info("input host lost", "queue", "/p/a", "host", "h1", "err", err)
	log.Info("output host lost", "queue", "/p/a", "group", "g", "host", "h2", "err", err)
	log.Info("consuming pauses", "queue", "/p/a", "group", "g", "err", err)
	log.Info("consuming goes on", "queue", "/p/a", "group", "g")
	log.Warn("something else", "addr", "h3:1", "err", err)
	want := "note: the connection to input host h1 of queue /p/a is lost: connection reset\n" +
		"note: the connection to output host h2 of group g of queue /p/a is lost: connection reset\n" +
		"note: group g of queue /p/a cannot be consumed for now; the command tries again: connection reset\n" +
		"note: group g of queue /p/a is consumed again\n" +
		"note: something else (addr h3:1, err connection reset)\n"
	if diff := cmp.Diff(want, talked.String()); diff != "" {
		t.Errorf("stderr (-want +got):\n%s", diff)
	}
}

// brokenPipe fails every write.
type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestPublish_OutputFails(t *testing.T) {
	p := newFakePublisher()
	var talk bytes.Buffer
	a := &app{stdin: strings.NewReader(strings.Repeat("x\n", 5000)), stdout: brokenPipe{}, stderr: &talk, fakePublisher: p}
	if code := a.main(context.Background(), []string{"publish", "/t/a", "-o", "json"}); code != core.ExitFailed {
		t.Errorf("exit code %d, want %d: %s", code, core.ExitFailed, talk.String())
	}
}

func BenchmarkPublish(b *testing.B) {
	for _, format := range []string{formatTable, formatJSON} {
		b.Run(format, func(b *testing.B) {
			p := newFakePublisher()
			p.keep = false
			b.ReportAllocs()
			a := &app{stdin: io.LimitReader(&repeater{text: []byte("a line of forty bytes is not that long.\n")}, int64(b.N)*40), stdout: io.Discard, stderr: io.Discard, fakePublisher: p}
			a.main(context.Background(), []string{"publish", "/t/a", "-o", format})
		})
	}
}

type repeater struct {
	text []byte
	at   int
}

func (r *repeater) Read(b []byte) (int, error) {
	n := 0
	for n < len(b) {
		c := copy(b[n:], r.text[r.at:])
		n += c
		r.at = (r.at + c) % len(r.text)
	}
	return n, nil
}
