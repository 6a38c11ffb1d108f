package cli

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/node"
)

// A question that a server cannot answer just now is asked again.
func TestAsk_AgainWhileThereIsNoAnswer(t *testing.T) {
	s, addr := newFakeServer(t)
	s.away.Store(2)
	if stdout, stderr, code := runCLI(addr, []string{"depth", "/demo/a", "-o", "json"}, ""); code != 0 || strings.Count(stdout, "\n") != 2 {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
	s.away.Store(1 << 30)
	_, stderr, code := runCLI(addr, []string{"depth", "/demo/a", "--timeout", "600ms"}, "")
	if code != core.ExitUnavailable || strings.Contains(stderr, "is the server running") || !strings.Contains(stderr, "try again in a few seconds") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	if asked := 1<<30 - s.away.Load(); asked < 2 || asked > 5 {
		t.Errorf("asked %d times", asked)
	}
}

// The hint is about the server only where none can be reached.
func TestHint_ServerThatIsNotThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	for _, line := range []string{"depth /demo/a", "consume /demo/a g", "delete queue /demo/a --yes"} {
		if _, stderr, code := runCLI(addr, append(strings.Fields(line), "--timeout", "500ms"), ""); code != core.ExitUnavailable || !strings.Contains(stderr, "is the server running?") || !strings.Contains(stderr, addr) {
			t.Errorf("%s: exit code %d, %q", line, code, stderr)
		}
	}
}

// Of several addresses the first that answers is used.
func TestAddr_Several(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := l.Addr().String()
	l.Close()
	_, addr := newFakeServer(t)
	for _, addrs := range []string{gone + "," + addr, addr + "," + gone} {
		if _, stderr, code := runCLI(addrs, []string{"list", "hosts"}, ""); code != 0 {
			t.Errorf("%s: exit code %d, %q", addrs, code, stderr)
		}
	}
	for _, bad := range []string{addr + ",", addr + ",x", "," + addr, addr + " ," + gone} {
		if _, stderr, code := runCLI(bad, []string{"list", "hosts"}, ""); code != 2 || !strings.Contains(stderr, "HOST:PORT") {
			t.Errorf("%s: exit code %d, %q", bad, code, stderr)
		}
	}
}

// watching is an output that ends a watch after so many writes.
type watching struct {
	bytes.Buffer
	left int
	end  func()
}

func (w *watching) Write(b []byte) (int, error) {
	if w.left--; w.left == 0 {
		w.end()
	}
	return w.Buffer.Write(b)
}

// A watch goes on while a server cannot answer, and fits the terminal.
func TestDepth_WatchLivesThroughFailures(t *testing.T) {
	s, addr := newFakeServer(t)
	s.away.Store(1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &watching{left: 3, end: cancel} // no answer, what clears it, the table
	a := &app{stdin: strings.NewReader(""), stdout: out, stderr: io.Discard, env: []string{"COLUMBA_ADDR=" + addr}, width: func(any) int { return 80 }, terminal: func(any) bool { return false }}
	code := a.main(ctx, []string{"depth", "/demo/a", "--watch"})
	failed, table, ok := strings.Cut(out.String(), "\x1b[1A\x1b[J")
	if code != 0 || !ok || !strings.Contains(failed, "no answer just now, asking again") || !strings.HasPrefix(table, "QUEUE ") || strings.Count(table, "\n") != 3 {
		t.Errorf("exit code %d, %q", code, out.String())
	}
	for line := range strings.Lines(failed + table) {
		if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > 80 {
			t.Errorf("a line of more than 80 characters: %q", line)
		}
	}
}

// A table leaves out columns in their order until it fits, and the first only if it says nothing.
func TestPrinter_FitsTheTerminal(t *testing.T) {
	for _, c := range []struct {
		width  int
		queues string
		want   string
	}{
		{0, "aa", "QUEUE  BB  CC"}, {13, "aa", "QUEUE  BB  CC"}, {12, "aa", "BB  CC"}, {6, "aa", "BB  CC"}, {5, "aa", "BB"},
		{12, "ab", "QUEUE  BB"}, {1, "ab", "QUEUE  BB"},
	} {
		var b bytes.Buffer
		p := &printer{w: &b, format: formatTable}
		p.fit(c.width, []string{"QUEUE", "CC"})
		for _, q := range c.queues {
			p.item([]field{{name: "queue", value: string(q)}, {name: "bb", value: 1}, {name: "cc", value: 2}})
		}
		p.close()
		if got, _, _ := strings.Cut(b.String(), "\n"); got != c.want {
			t.Errorf("width %d, queues %s: %q, want %q", c.width, c.queues, got, c.want)
		}
	}
}

// Lists fit a terminal of 80 columns, and say how many columns they leave out. Elsewhere they are whole.
func TestLists_FitTheTerminal(t *testing.T) {
	s, addr := newFakeServer(t)
	if err := s.setup("/demo/a", "billing"); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"list queues", "list groups /demo/a", "dlq list /demo/a billing", "list hosts", "list extents /demo/a", "peek /demo/a", "list delayed /demo/a billing", "list delayed /demo/a", "list audit", "list operations --all", "depth /demo/a", "depth", "show message " + fakeExtent + ":7"} {
		var out, talk bytes.Buffer
		a := &app{
			stdin: strings.NewReader(""), stdout: &out, stderr: &talk, env: []string{"COLUMBA_ADDR=" + addr},
			width: func(any) int { return 80 }, terminal: func(any) bool { return false },
		}
		if code := a.main(t.Context(), strings.Fields(line)); code != 0 {
			t.Errorf("%s: exit code %d, %q", line, code, talk.String())
		}
		table := out.String()
		if strings.HasPrefix(line, "show") { // the object above the table is as wide as what it holds
			_, table, _ = strings.Cut(table, "\n\n")
		}
		for row := range strings.Lines(table) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(row, "\n")); n > 80 {
				t.Errorf("%s: a line of %d characters: %q", line, n, row)
			}
		}
		if !strings.Contains(talk.String(), ": -o json\n") {
			t.Errorf("%s does not say that columns are left out: %q", line, talk.String())
		}
		if _, stderr, _ := runCLI(addr, strings.Fields(line), ""); strings.Contains(stderr, "-o json") {
			t.Errorf("%s leaves out columns where there is no terminal: %q", line, stderr)
		}
	}
}

// TestDepth_NarrowKeepsStates leaves out rates before the states of messages.
func TestDepth_NarrowKeepsStates(t *testing.T) {
	s, addr := newFakeServer(t)
	if err := s.setup("/demo/a", "billing"); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	a := &app{
		stdin: strings.NewReader(""), stdout: &out, stderr: io.Discard, env: []string{"COLUMBA_ADDR=" + addr},
		width: func(any) int { return 80 }, terminal: func(any) bool { return false },
	}
	if code := a.main(t.Context(), []string{"depth", "/demo/a"}); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	got, _, _ := strings.Cut(out.String(), "\n")
	if want := []string{"QUEUE", "GROUP", "READY", "IN_FLIGHT", "DELAYED", "BLOCKED", "DEAD", "OLDEST_READY_MS"}; !slices.Equal(strings.Fields(got), want) {
		t.Errorf("columns %q, want %q", strings.Fields(got), want)
	}
}

// A variable that looks like a setting and is none is mentioned, with what may have been meant.
func TestServe_UnknownVariables(t *testing.T) {
	for variable, want := range map[string]string{
		"COLUMBA_LISTN=x":                       "did you mean COLUMBA_LISTEN?",
		"COLUMBA_FROBNICATE=1":                  "has no effect\n",
		"COLUMBA_DATA=/x":                       "",
		"COLUMBA_ADDR=127.0.0.1:1":              "",
		"COLUMBA_PORT_4922_TCP=tcp://10.0.0.1:": "",
		"COLUMBA_SERVICE_HOST=10.0.0.1":         "",
	} {
		var out, talk bytes.Buffer
		code := Main(t.Context(), []string{"config", "print", "--diff"}, strings.NewReader(""), &out, &talk, []string{variable})
		if code != 0 || (want == "") != (talk.Len() == 0) || !strings.Contains(talk.String(), want) {
			t.Errorf("%s: exit code %d, %q", variable, code, talk.String())
		}
	}
}

// All errors of a file are said, with their lines.
func TestConfigCheck_AllErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	text := "data: /tmp/x\nstores: many\nreplicas: 99\nfoo: 1\nlisten: 0.0.0.0:4922\ninsecure: maybe\nlog-level: loud\nreplicas: 2\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	_, stderr, code := runCLI("", []string{"config", "check", file}, "")
	_, served, servedCode := runCLI("", []string{"serve", "--config", file}, "")
	if want := strings.Replace(stderr, file+" has 7", "the configuration file has 7", 1); served != want || servedCode != 2 {
		t.Errorf("serve, exit code %d:\n%swant:\n%s", servedCode, served, want)
	}
	last := 0
	for line := range strings.Lines(stderr) {
		_, rest, _ := strings.Cut(line, file+":")
		if n, err := strconv.Atoi(strings.SplitN(rest, ":", 2)[0]); err == nil {
			if n < last {
				t.Errorf("line %d comes after line %d", n, last)
			}
			last = n
		}
	}
	for _, want := range []string{":2: stores: \"many\" is not a whole number", ":3: replicas 99", ":4: key \"foo\" is unknown", ":5: listen", ":6: insecure: \"maybe\" is neither true nor false", ":7: ", ":8: key \"replicas\" is given twice", "has 7 errors"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("%q is not said", want)
		}
	}
	if code != 2 || strings.Contains(stderr, "strconv") || t.Failed() {
		t.Errorf("exit code %d:\n%s", code, stderr)
	}
	if errs := node.CheckFile(file); len(errs) != 7 {
		t.Errorf("%d errors", len(errs))
	}
}

// TestConfigPrint_JSONIsAFile has the printed JSON taken as a file, and a key in its former spelling explained.
func TestConfigPrint_JSONIsAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.json")
	stdout, _, _ := runCLI("", []string{"config", "print", "--log-level", "debug", "--zone", "null", "-o", "json"}, "")
	for text, want := range map[string]string{stdout: "is a valid configuration", "log_level: debug\n": "did you mean log-level?"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, stderr, _ := runCLI("", []string{"config", "check", file}, ""); !strings.Contains(stderr, want) {
			t.Errorf("%s: %q, want %q", text, stderr, want)
		}
	}
}
