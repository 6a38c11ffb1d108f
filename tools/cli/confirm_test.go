package cli

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
)

// onTerminal runs a command line whose stdin and stderr are a terminal.
func onTerminal(ctx context.Context, addr, line string, stdin io.Reader) (stderr string, code int) {
	var talk bytes.Buffer
	a := &app{stdin: stdin, stdout: io.Discard, stderr: &talk, env: []string{"COLUMBA_ADDR=" + addr}, terminal: func(any) bool { return true }}
	code = a.main(ctx, strings.Fields(line))
	return talk.String(), code
}

// TestConfirm_WhatCannotBeUndone has every command that throws messages away asked for on a terminal and without one.
func TestConfirm_WhatCannotBeUndone(t *testing.T) {
	s, addr := newFakeServer(t)
	again := func() {
		run(addr, "create queue /demo/a", "create group /demo/a billing", "create group /demo/a mail")
	}
	for line, does := range map[string]proto.Message{
		"purge queue /demo/a":                               &pb.StartOperationRequest{},
		"purge-dlq /demo/a billing":                         &pb.StartOperationRequest{},
		"dlq purge /demo/a billing --min-attempts 3 --wait": &pb.StartOperationRequest{},
		"delete group /demo/a mail":                         &pb.DeleteGroupRequest{},
		"delete queue /demo/a":                              &pb.DeleteQueueRequest{},
	} {
		again()
		did := func() bool {
			last := s.last
			s.last = nil
			return last != nil && last.ProtoReflect().Descriptor() == does.ProtoReflect().Descriptor()
		}
		for _, answer := range []string{"n\n", "\n", "", "yep\n"} {
			if stderr, code := onTerminal(t.Context(), addr, line, strings.NewReader(answer)); code != 1 || !strings.HasSuffix(stderr, "Go on? [y/N] nothing was changed\n") || did() {
				t.Errorf("%s, answer %q: %q, exit code %d", line, answer, stderr, code)
			}
		}
		missing := strings.ReplaceAll(line, "/demo/a", "/demo/missing")
		if stderr, code := onTerminal(t.Context(), addr, missing, strings.NewReader("y\n")); code != 3 || strings.Contains(stderr, "Go on") || did() {
			t.Errorf("%s: %q, exit code %d", missing, stderr, code)
		}
		if stderr, code := onTerminal(t.Context(), addr, line+" --dry-run --yes", iotest.ErrReader(io.ErrUnexpectedEOF)); code != 0 || did() {
			t.Errorf("%s --dry-run --yes: %q, exit code %d", line, stderr, code)
		}
		if stderr, code := onTerminal(t.Context(), addr, line, strings.NewReader(" Y \n")); code != 0 || !did() {
			t.Errorf("%s, agreed to: %q, exit code %d", line, stderr, code)
		}
		again()
		if stderr, code := onTerminal(t.Context(), addr, line+" --yes", iotest.ErrReader(io.ErrUnexpectedEOF)); code != 0 || !did() {
			t.Errorf("%s --yes: %q, exit code %d", line, stderr, code)
		}
		again()
		for _, stdin := range []string{"", "n\n", "y\n"} {
			if _, stderr, code := runCLI(addr, strings.Fields(line), stdin); code != 2 || !strings.Contains(stderr, "add --yes") || did() {
				t.Errorf("%s, no terminal, stdin %q: %q, exit code %d", line, stdin, stderr, code)
			}
		}
		if _, stderr, code := runCLI(addr, strings.Fields(line+" --yes"), "n\n"); code != 0 || !did() {
			t.Errorf("%s --yes, no terminal: %q, exit code %d", line, stderr, code)
		}
	}
}

// TestConfirm_AnotherOneByThen: while a question stands, what it is about is deleted and made anew under its name. The
// user agreed to something else.
func TestConfirm_AnotherOneByThen(t *testing.T) {
	s, addr := newFakeServer(t)
	run(addr, "create queue /demo/a", "create group /demo/a billing")
	for _, line := range []string{"purge queue /demo/a", "purge-dlq /demo/a billing", "delete group /demo/a billing", "delete queue /demo/a"} {
		s.last = nil
		answer := strings.NewReader("y\n")
		agrees := readerFunc(func(b []byte) (int, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			for path, q := range s.queues {
				anew := proto.CloneOf(q)
				anew.Id = core.NewID(time.Now()).String()
				s.queues[path] = anew
			}
			for name, g := range s.groups {
				anew := proto.CloneOf(g)
				anew.Id = core.NewID(time.Now()).String()
				s.groups[name] = anew
			}
			return answer.Read(b)
		})
		stderr, code := onTerminal(t.Context(), addr, line, agrees)
		if code == 0 || !strings.Contains(stderr, "made anew") || !strings.Contains(stderr, "nothing was changed") || s.last != nil {
			t.Errorf("%s: %q, exit code %d, and the server was asked for %v", line, stderr, code, s.last)
		}
	}
}

// TestConfirm_MoreOrphansByThen: the user agreed to the end of fewer extents.
func TestConfirm_MoreOrphansByThen(t *testing.T) {
	s, addr := newFakeServer(t)
	for more, done := range map[int64]bool{0: true, 1: false, -1: true} {
		s.strays.Store(1)
		answer := strings.NewReader("y\n")
		agrees := readerFunc(func(b []byte) (int, error) {
			s.strays.Store(1 + more)
			return answer.Read(b)
		})
		stderr, code := onTerminal(t.Context(), addr, "delete orphans", agrees)
		if last, _ := s.last.(*pb.DeleteOrphansRequest); (code == 0) != done || last.GetDryRun() == done || strings.Contains(stderr, "nothing was changed") == done {
			t.Errorf("%d more: %q, exit code %d, and the server was asked for %v", more, stderr, code, s.last)
		}
	}
}

// TestPurge_AnotherQueueByThen: after a first operation, which leaves something, another queue has the path.
func TestPurge_AnotherQueueByThen(t *testing.T) {
	s, addr := newFakeServer(t)
	run(addr, "create queue /demo/a")
	operations := 0
	s.part = func() {
		if operations++; operations > 1 {
			t.Error("messages of another queue are purged")
			s.part = nil
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		q := proto.CloneOf(s.queues["/demo/a"])
		q.Id = core.NewID(time.Now()).String()
		s.queues["/demo/a"] = q
	}
	if stderr, code := onTerminal(t.Context(), addr, "purge queue /demo/a --yes", strings.NewReader("")); code == 0 || !strings.Contains(stderr, "made anew") {
		t.Errorf("%q, exit code %d", stderr, code)
	}
}

// TestConfirm_NeedsBothEnds refuses where the question could be read but not answered, or answered but not read.
func TestConfirm_NeedsBothEnds(t *testing.T) {
	_, addr := newFakeServer(t)
	run(addr, "create queue /demo/a")
	for _, terminal := range []string{"stdin", "stderr"} {
		var talk bytes.Buffer
		stdin := strings.NewReader("y\n")
		a := &app{stdin: stdin, stdout: io.Discard, stderr: &talk, env: []string{"COLUMBA_ADDR=" + addr}, terminal: func(v any) bool { return (v == any(stdin)) == (terminal == "stdin") }}
		if code := a.main(t.Context(), []string{"delete", "queue", "/demo/a"}); code != 2 || !strings.Contains(talk.String(), "add --yes") {
			t.Errorf("only %s is a terminal: %q, exit code %d", terminal, talk.String(), code)
		}
	}
}

// TestConfirm_Interrupt ends a command that waits for an answer.
func TestConfirm_Interrupt(t *testing.T) {
	_, addr := newFakeServer(t)
	run(addr, "create queue /demo/a")
	ctx, interrupt := context.WithCancel(t.Context())
	silent, keyboard := io.Pipe()
	defer keyboard.Close()
	reads := readerFunc(func(b []byte) (int, error) {
		interrupt()
		return silent.Read(b)
	})
	if stderr, code := onTerminal(ctx, addr, "delete queue /demo/a", reads); code != 1 || !strings.HasSuffix(stderr, "\nnothing was changed\ninterrupted\n") {
		t.Errorf("%q, exit code %d", stderr, code)
	}
	if _, _, code := runCLI(addr, []string{"show", "queue", "/demo/a"}, ""); code != 0 {
		t.Error("the queue is gone")
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// TestConfirm_PurgeSaysHowMany has the question name the dead letters that would go.
func TestConfirm_PurgeSaysHowMany(t *testing.T) {
	s, addr := newFakeServer(t)
	if err := s.setup("/demo/a", "billing"); err != nil {
		t.Fatal(err)
	}
	stderr, _ := onTerminal(t.Context(), addr, "purge-dlq /demo/a billing", strings.NewReader("n\n"))
	if !strings.Contains(stderr, "the dead letters of group billing of /demo/a (") {
		t.Errorf("stderr %q has no number", stderr)
	}
}
