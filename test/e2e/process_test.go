package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/columbamq/columba/test/process"
)

// patience is how long anything may take before a test gives up on it.
const patience = 60 * time.Second

// server is a running `columba serve`.
type server struct {
	t    testing.TB
	data string
	addr string // also that of the next start, so that clients find it again
	cmd  *exec.Cmd
	log  *process.Buffer
	done chan error
}

var readyLine = regexp.MustCompile(`^ready addr=(\S+) roles=(\S+) data=(\S+)$`)

// startServer runs a server on a new data directory and a free port until the test ends.
func startServer(t testing.TB, flags ...string) *server {
	t.Helper()
	s := &server{t: t, data: filepath.Join(t.TempDir(), "data"), addr: fmt.Sprintf("127.0.0.1:%d", process.FreePort(t)), log: &process.Buffer{}}
	s.start(flags...)
	t.Cleanup(func() {
		if s.cmd != nil {
			s.kill()
		}
		if t.Failed() {
			t.Logf("server log:\n%s", s.log)
		}
	})
	return s
}

func (s *server) start(flags ...string) {
	s.t.Helper()
	s.cmd = exec.Command(binary, append([]string{"serve", "--data", s.data, "--listen", s.addr}, flags...)...)
	s.cmd.Env = []string{"HOME=" + s.t.TempDir()}
	s.cmd.Stderr = s.log
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	lines := make(chan string, 1)
	s.done = make(chan error, 1)
	go func() {
		in := bufio.NewScanner(out)
		for in.Scan() {
			lines <- in.Text()
		}
		close(lines)
		s.done <- s.cmd.Wait()
	}()
	select {
	case line := <-lines:
		m := readyLine.FindStringSubmatch(line)
		if m == nil {
			s.kill()
			s.t.Fatalf("server said %q instead of being ready; its log:\n%s", line, s.log)
		}
		if m[1] != s.addr {
			s.kill()
			s.t.Fatalf("server listens on %s, not on %s", m[1], s.addr)
		}
	case <-time.After(patience):
		s.kill()
		s.t.Fatalf("server is not ready after %s; its log:\n%s", patience, s.log)
	}
}

// kill ends the server as a power cut of its process would.
func (s *server) kill() {
	s.t.Helper()
	s.cmd.Process.Kill()
	<-s.done
	s.cmd = nil
}

// stop drains the server and returns its exit code.
func (s *server) stop() int {
	s.t.Helper()
	s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.done:
	case <-time.After(patience):
		s.cmd.Process.Kill()
		<-s.done
		s.t.Errorf("server still runs %s after SIGTERM", patience)
	}
	code := s.cmd.ProcessState.ExitCode()
	s.cmd = nil
	return code
}

// result is what a command printed and how it ended.
type result struct {
	args           []string
	stdout, stderr string
	code           int
}

// run runs a command line to its end.
func (s *server) run(stdin string, args ...string) result {
	s.t.Helper()
	cmd := s.command(args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &talk
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatalf("columba %s: %v", strings.Join(args, " "), err)
	}
	return result{args, out.String(), talk.String(), cmd.ProcessState.ExitCode()}
}

// command is a command line against the server that does not outlive the test.
func (s *server) command(args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	s.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = []string{"COLUMBA_ADDR=" + s.addr, "HOME=" + os.TempDir()}
	return cmd
}

// must is run for a command that has to exit with 0; it returns what it printed.
func (s *server) must(stdin string, args ...string) string {
	s.t.Helper()
	r := s.run(stdin, args...)
	if r.code != 0 {
		s.t.Fatalf("columba %s: exit code %d\nstdout: %.500s\nstderr: %.2000s\nserver log: %s", strings.Join(args, " "), r.code, r.stdout, r.stderr, s.log)
	}
	return r.stdout
}

// decode reads JSON lines.
func decode[T any](t testing.TB, text string) []T {
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

// eventually waits until ok or the test's patience ends.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(patience); ; {
		if ok() {
			return
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}
