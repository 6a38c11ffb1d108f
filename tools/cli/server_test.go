package cli

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

func TestServer_Unreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	for _, args := range []string{"list hosts", "create queue /a/b", "publish /a/b", "consume /a/b g", "bench latency /a/b"} {
		_, stderr, code := runCLI(addr, append(strings.Fields(args), "--timeout", "500ms"), "x\n")
		if code != core.ExitUnavailable || !strings.Contains(stderr, "(unavailable) – ") {
			t.Errorf("%s: exit code %d, stderr %q", args, code, stderr)
		}
	}
}

func TestServer_LostAnswer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Read(make([]byte, 10))
			c.Close()
		}
	}()
	defer func() { l.Close(); <-done }()
	for args, want := range map[string]string{"delete queue /a/b --yes": "(unknown_outcome)", "show queue /a/b": "(unavailable)"} {
		_, stderr, code := runCLI(l.Addr().String(), strings.Fields(args), "")
		if code != core.ExitUnavailable || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, stderr %q, want %s", args, code, stderr, want)
		}
	}
}

func TestServer_Timeout(t *testing.T) {
	s, addr := newFakeServer(t)
	s.hang = make(chan struct{})
	defer close(s.hang)
	_, stderr, code := runCLI(addr, []string{"list", "hosts", "--timeout", "20ms"}, "")
	if code != core.ExitUnavailable || !strings.Contains(stderr, "within 20ms (deadline_exceeded)") {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
}

func TestServer_Interrupted(t *testing.T) {
	s, addr := newFakeServer(t)
	s.hang = make(chan struct{})
	defer close(s.hang)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	inner, interrupt := context.WithCancel(context.Background())
	context.AfterFunc(ctx, interrupt)
	var out, talk bytes.Buffer
	code := Main(inner, []string{"list", "hosts"}, strings.NewReader(""), &out, &talk, []string{"COLUMBA_ADDR=" + addr})
	if code != core.ExitFailed || talk.String() != "interrupted\n" {
		t.Errorf("exit code %d, stderr %q", code, talk.String())
	}
}

func TestServer_OutputThatCannotBeWritten(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("needs a device that is always full: ", err)
	}
	defer full.Close()
	_, addr := newFakeServer(t)
	for _, args := range [][]string{{"list", "hosts"}, {"list", "extents", "/a/b", "-o", "json"}, {"version"}} {
		var talk bytes.Buffer
		code := Main(context.Background(), args, strings.NewReader(""), full, &talk, []string{"COLUMBA_ADDR=" + addr})
		if code != core.ExitFailed || !strings.Contains(talk.String(), "free space where it goes") {
			t.Errorf("%s: exit code %d, stderr %q", args, code, talk.String())
		}
	}
}

func TestServer_FlagBeatsEnvironment(t *testing.T) {
	_, addr := newFakeServer(t)
	var out, talk bytes.Buffer
	code := Main(context.Background(), []string{"list", "hosts", "--addr", addr}, strings.NewReader(""), &out, &talk, []string{"COLUMBA_ADDR=127.0.0.1:1"})
	if code != core.ExitOK {
		t.Errorf("exit code %d: %s", code, talk.String())
	}
}

func TestServer_GetsWhatTheFlagsSaid(t *testing.T) {
	for _, c := range []struct {
		args string
		want proto.Message
	}{
		{"nack a b --reason later", &pb.NackRequest{Tokens: []string{"a", "b"}, Reason: "later"}},
		{"nack a --delay 0s", &pb.NackRequest{Tokens: []string{"a"}, Delay: durationpb.New(0)}},
		{"reject a --reason no", &pb.RejectRequest{Tokens: []string{"a"}, Reason: "no"}},
		{"extend a 90s", &pb.ExtendRequest{Tokens: []string{"a"}, By: durationpb.New(90 * time.Second)}},
		{"seal /a/b " + fakeExtent + " --force --yes", &pb.SealExtentAdminRequest{Queue: "/a/b", Extent: fakeExtent, Force: true}},
		{"update queue /a/b --consumed-retention 0 --min-replicas 2", &pb.UpdateQueueRequest{
			Spec: &pb.QueueSpec{Path: "/a/b", MinReplicas: 2}, Fields: []string{"consumed_retention", "min_replicas"},
		}},
		{"update group /a/b g --delay 0 --backoff none", &pb.UpdateGroupRequest{
			Spec: &pb.GroupSpec{Queue: "/a/b", Name: "g", Delay: durationpb.New(0)}, Fields: []string{"backoff", "delay"},
		}},
	} {
		s, addr := newFakeServer(t)
		if err := s.setup("/a/b", "g"); err != nil {
			t.Fatal(err)
		}
		if _, stderr, code := runCLI(addr, strings.Fields(c.args), ""); code != core.ExitOK {
			t.Errorf("%s: exit code %d: %s", c.args, code, stderr)
		}
		if !proto.Equal(s.last, c.want) {
			t.Errorf("%s: server got %v, want %v", c.args, s.last, c.want)
		}
	}
}

func TestEnvironment_IsNamedByErrors(t *testing.T) {
	for _, c := range []struct{ env, args, says string }{
		{"COLUMBA_ADDR=nowhere", "list hosts", `COLUMBA_ADDR: address "nowhere" is not HOST:PORT`},
		{"COLUMBA_ADDR=nowhere", "consume /a/b g", `COLUMBA_ADDR: address "nowhere" is not HOST:PORT`},
		{"COLUMBA_REPLICAS=99", "config print", `COLUMBA_REPLICAS="99": replicas 99 is not in`},
		{"COLUMBA_REPLICAS=x", "config print", `COLUMBA_REPLICAS="x"`},
		{"COLUMBA_CONFIG=/does/not/exist", "config print", `COLUMBA_CONFIG="/does/not/exist": read the configuration`},
	} {
		var out, talk bytes.Buffer
		code := Main(context.Background(), strings.Fields(c.args), strings.NewReader(""), &out, &talk, []string{"COLUMBA_ZONE=z1", c.env})
		if code != core.ExitUsage || !strings.Contains(talk.String(), c.says) || strings.Count(talk.String(), "environment variable") != 1 {
			t.Errorf("%s, %s: exit code %d, stderr %q, want %q", c.env, c.args, code, talk.String(), c.says)
		}
	}
	_, stderr, code := runCLI("127.0.0.1:1", strings.Fields("config print --replicas 99"), "")
	if code != core.ExitUsage || strings.Contains(stderr, "environment") {
		t.Errorf("a flag's error: exit code %d, stderr %q", code, stderr)
	}
}

func TestCompletion_OffersValuesOfFlags(t *testing.T) {
	for args, want := range map[string]string{
		"update queue /a/b --status ":    "enabled\ndisabled\nsend-only\nreceive-only\n:4\n",
		"create queue --durability ":     "fsync\nwritten\n:4\n",
		"create queue --consistency ":    "ap\ncp\n:4\n",
		"create group /a g --exhausted ": "dlq\ndrop\nblock\n:4\n",
		"list queues -o ":                "table\njson\nyaml\n:4\n",
		"consume --ack ":                 "auto\nnone\ntokens\n:4\n",
	} {
		if stdout, _, _ := runCLI("127.0.0.1:1", strings.Split("__complete "+args, " "), ""); stdout != want {
			t.Errorf("%q completes to %q, want %q", args, stdout, want)
		}
	}
}

// The script for bash completes without the package bash-completion.
func TestCompletion_BashAlone(t *testing.T) {
	script, stderr, code := runCLI("127.0.0.1:1", []string{"completion", "bash"}, "")
	if code != core.ExitOK {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	// A function answers the questions of the script to the program.
	test := script + `
columba() { printf 'create\ncompletion\n:4\n'; }
COMP_WORDS=(columba cr) COMP_CWORD=1 COMP_LINE="columba cr" COMP_POINT=10 COMP_TYPE=9
compopt() { :; }
__start_columba
printf '%s\n' "${COMPREPLY[@]}"
`
	cmd := exec.CommandContext(t.Context(), "bash", "--noprofile", "--norc", "-c", test)
	cmd.Env = []string{}
	out, err := cmd.CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != "create" {
		t.Errorf("it completes to %q, %v", out, err)
	}
}

func TestCompletion_OffersQueuesAndGroups(t *testing.T) {
	_, addr := newFakeServer(t)
	run(addr, "create queue /demo/a /demo/b", "create group /demo/a billing")
	for args, want := range map[string]string{
		"show queue /demo/a":   "/demo/a\n/demo/a/billing.dlq\n:4\n",
		"show queue /demo/b":   "/demo/b\n:4\n",
		"consume /demo/a ":     "billing\n:4\n",
		"show queue /demo/a x": ":4\n",
	} {
		words := strings.Split("__complete "+args, " ")
		if stdout, _, _ := runCLI(addr, words, ""); stdout != want {
			t.Errorf("%q completes to %q, want %q", args, stdout, want)
		}
	}
}

func TestCommands_HaveHelpAndExamples(t *testing.T) {
	docs, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	root := (&app{stdin: strings.NewReader(""), stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}}).root()
	commands := root.Commands()
	for len(commands) > 0 {
		cmd := commands[0]
		commands = append(commands[1:], cmd.Commands()...)
		if cmd.Short == "" {
			t.Errorf("%s has no help", cmd.CommandPath())
		}
		if cmd.HasSubCommands() || cmd.Name() == "help" {
			continue
		}
		if cmd.Example == "" {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		if !bytes.Contains(docs, []byte(cmd.CommandPath()+" ")) && !bytes.Contains(docs, []byte(cmd.CommandPath()+"\n")) {
			t.Errorf("%s has no example in docs/cli.md", cmd.CommandPath())
		}
	}
}

func TestPublish_OwnedQueueSaysWhereToPublish(t *testing.T) {
	err := publishError("/demo/a/billing.dlq", core.Errorf(core.CodeUnsupported, "queue belongs to its group"))
	if got := errorLine("", err); !strings.HasSuffix(got, "(unsupported) – publish to /demo/a instead") {
		t.Errorf("got %s", got)
	}
	err = publishError("/demo/a", core.Errorf(core.CodeDisabled, "queue is disabled"))
	if got := errorLine("", err); !strings.Contains(got, "--status enabled") {
		t.Errorf("got %s", got)
	}
}

func TestCreateQueue_Thousands(t *testing.T) {
	s, addr := newFakeServer(t)
	var paths strings.Builder
	for i := range 3*createChunk + 1 {
		paths.WriteString("/many/q" + string(rune('a'+i%26)) + strings.Repeat("x", i/26) + "\n")
	}
	text := paths.String()
	stdout, stderr, code := runCLI(addr, []string{"create", "queue", "--from-stdin", "-o", "json"}, text)
	if lines := strings.Count(stdout, "\n"); code != core.ExitOK || stderr != "" || lines != len(s.queues) || lines != 3*createChunk+1 {
		t.Errorf("exit code %d, %d lines for %d queues, stderr %q", code, lines, len(s.queues), stderr)
	}
}

func TestServer_NotServing(t *testing.T) {
	for status, want := range map[int]string{
		http.StatusServiceUnavailable: "is starting or stopping (unavailable) – try again in a moment",
		http.StatusOK:                 "is not a Columba server: it answered invalid content-type: \"text/html\"",
		http.StatusNotFound:           "does not know this request (unimplemented) – name one with the role frontend",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(status)
		}))
		for _, args := range []string{"list hosts", "delete queue /a/b --yes"} {
			if _, stderr, _ := runCLI(server.Listener.Addr().String(), append(strings.Fields(args), "--timeout", "500ms"), ""); !strings.Contains(stderr, want) {
				t.Errorf("%s, answered with %d: stderr %q, want %s", args, status, stderr, want)
			}
		}
		server.Close()
	}
}
