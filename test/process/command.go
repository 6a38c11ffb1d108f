package process

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Result is what a command line printed and how it ended.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// Run runs a command line against the server to its end.
func (s *Server) Run(stdin string, args ...string) Result {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	line := slices.Concat(s.from, []string{Program}, args)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Env = []string{"COLUMBA_ADDR=" + s.Addr, "HOME=" + os.TempDir()}
	cmd.Stdin = strings.NewReader(stdin)
	var out, talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &talk
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		s.t.Fatalf("columba %s: %v", strings.Join(args, " "), err)
	}
	return Result{out.String(), talk.String(), cmd.ProcessState.ExitCode()}
}

// Must is Run for a command that has to exit with 0; it returns what it printed.
func (s *Server) Must(stdin string, args ...string) string {
	s.t.Helper()
	r := s.Run(stdin, args...)
	if r.Code != 0 {
		s.t.Fatalf("columba %s: exit code %d\nstdout: %.500s\nstderr: %.2000s", strings.Join(args, " "), r.Code, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

// Command is a command line that runs in the background until it ends or the test does.
type Command struct {
	t      testing.TB
	cmd    *exec.Cmd
	args   string
	stderr *Buffer
	done   chan struct{} // closed when it has ended and every line was taken
}

// Launch starts a command line. line gets each whole line of its stdout, on one goroutine: what a kill cut off is none.
func (s *Server) Launch(stdin io.Reader, line func([]byte), args ...string) *Command {
	s.t.Helper()
	return s.LaunchProgram(Program, stdin, line, args...)
}

// LaunchProgram is Launch of another program.
func (s *Server) LaunchProgram(program string, stdin io.Reader, line func([]byte), args ...string) *Command {
	s.t.Helper()
	whole := slices.Concat(s.from, []string{program}, args)
	c := &Command{
		t: s.t, cmd: exec.Command(whole[0], whole[1:]...), args: strings.Join(args, " "), stderr: &Buffer{}, done: make(chan struct{}),
	}
	c.cmd.Env = []string{"COLUMBA_ADDR=" + s.Addr, "HOME=" + os.TempDir()}
	c.cmd.Stdin, c.cmd.Stderr = stdin, c.stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() { // joined by Kill, in the cleanup at the latest
		in := bufio.NewScanner(out)
		in.Buffer(nil, 32<<20)
		in.Split(wholeLines)
		for in.Scan() {
			line(in.Bytes())
		}
		_ = c.cmd.Wait()
		close(c.done)
	}()
	s.t.Cleanup(func() {
		c.Kill()
		if s.t.Failed() {
			s.t.Logf("columba %s: %s; stderr:\n%s", c.args, c.cmd.ProcessState, c.stderr.Tail(2<<10))
		}
	})
	return c
}

// wholeLines is bufio.ScanLines without the rest that no end of line follows.
func wholeLines(data []byte, atEOF bool) (int, []byte, error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF {
		return len(data), nil, nil
	}
	return 0, nil, nil
}

// Kill is kill -9; nothing if the command has ended.
func (c *Command) Kill() {
	_ = c.cmd.Process.Kill()
	<-c.done
}

// Wait waits for the command's end and returns its exit code.
func (c *Command) Wait() int {
	c.t.Helper()
	select {
	case <-c.done:
	case <-time.After(Patience):
		c.t.Errorf("columba %s still runs after %s", c.args, Patience)
		c.Kill()
	}
	return c.cmd.ProcessState.ExitCode()
}

// Interrupt is Ctrl-C; it returns the exit code.
func (c *Command) Interrupt() int {
	c.t.Helper()
	_ = c.cmd.Process.Signal(syscall.SIGINT)
	return c.Wait()
}

// Pause is SIGSTOP: the command stands still, with its connections, until Continue or Kill.
func (c *Command) Pause() { _ = c.cmd.Process.Signal(syscall.SIGSTOP) }

// Continue is SIGCONT.
func (c *Command) Continue() { _ = c.cmd.Process.Signal(syscall.SIGCONT) }

// Running reports whether the command has not ended.
func (c *Command) Running() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// Stderr is what the command has said so far.
func (c *Command) Stderr() string { return c.stderr.String() }

// Decode reads JSON lines.
func Decode[T any](t testing.TB, text string) []T {
	t.Helper()
	var out []T
	for line := range strings.Lines(text) {
		var v T
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		out = append(out, v)
	}
	return out
}

// Eventually waits until ok, or until the test's patience ends. It looks every 20 ms at first, and less often the
// longer it waits: most looks are calls of a server, or processes, and cost more than the time in between.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	EventuallyWithin(t, Patience, what, ok)
}

// EventuallyWithin is Eventually with a limit of its own.
func EventuallyWithin(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	EventuallyOr(t, limit, ok, func() string { return what })
}

// EventuallyOr is EventuallyWithin with a text that is made when the wait was in vain.
func EventuallyOr(t testing.TB, limit time.Duration, ok func() bool, what func() string) {
	t.Helper()
	for began := time.Now(); !ok(); {
		waited := time.Since(began)
		if waited >= limit {
			t.Fatalf("%s: not within %s", what(), limit)
		}
		<-time.After(min(max(20*time.Millisecond, waited/20), limit-waited))
	}
}
