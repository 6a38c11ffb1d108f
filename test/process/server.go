package process

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
)

// Patience is how long anything may take before a test gives up on it.
const Patience = 60 * time.Second

// Server is a running `columba serve`. Not safe for concurrent use.
type Server struct {
	Addr string // also that of the next start, so that clients find it again
	Data string

	t       testing.TB
	program string
	flags   []string
	cmd     *exec.Cmd
	log     *Buffer
	done    chan struct{} // closed when the process has ended
}

var readyLine = regexp.MustCompile(`^ready addr=(\S+) roles=(\S+) data=(\S+)$`)

// StartServer runs a server on a new data directory and a free port until the test ends.
func StartServer(t testing.TB, flags ...string) *Server {
	t.Helper()
	return StartProgram(t, Program, flags...)
}

// StartProgram is StartServer with another build of the binary.
func StartProgram(t testing.TB, program string, flags ...string) *Server {
	t.Helper()
	s := &Server{
		t: t, program: program, flags: flags, log: &Buffer{},
		Data: filepath.Join(t.TempDir(), "data"), Addr: "127.0.0.1:0",
	}
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			t.Logf("server log:\n%s", s.log.Tail(8<<10))
		}
	})
	s.Start()
	return s
}

// Start runs the server on its directory and port and waits for its ready line.
func (s *Server) Start() {
	s.t.Helper()
	args := append([]string{"serve", "--data", s.Data, "--listen", s.Addr}, s.flags...)
	s.cmd = exec.Command(s.program, args...)
	s.cmd.Env = []string{"HOME=" + os.TempDir()}
	s.cmd.Stderr = s.log
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	first := make(chan string, 1)
	s.done = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) { // joined by Kill and Stop
		in := bufio.NewScanner(out)
		for n := 0; in.Scan(); n++ {
			if n == 0 {
				first <- in.Text()
			}
		}
		close(first)
		_ = cmd.Wait()
		close(done)
	}(s.cmd, s.done)
	select {
	case line := <-first:
		m := readyLine.FindStringSubmatch(line)
		if m == nil {
			s.Kill()
			s.t.Fatalf("server said %q instead of being ready; its log:\n%s", line, s.log)
		}
		s.Addr = m[1]
	case <-time.After(Patience):
		s.Kill()
		s.t.Fatalf("server is not ready after %s; its log:\n%s", Patience, s.log)
	}
}

// Kill is kill -9; nothing if the server does not run.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	<-s.done
	s.cmd = nil
}

// Restart kills the server and starts it again on its directory and port.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	s.Start()
}

// Stop asks the server to drain and returns its exit code.
func (s *Server) Stop() int {
	s.t.Helper()
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.done:
	case <-time.After(Patience):
		_ = s.cmd.Process.Kill()
		<-s.done
		s.t.Errorf("server still runs %s after SIGTERM", Patience)
	}
	code := s.cmd.ProcessState.ExitCode()
	s.cmd = nil
	return code
}

// Alive fails the test if the server has ended by itself.
func (s *Server) Alive() {
	s.t.Helper()
	select {
	case <-s.done:
		s.t.Fatalf("server has ended: %s; its log:\n%s", s.cmd.ProcessState, s.log)
	default:
	}
}

// Log is what the server has said so far.
func (s *Server) Log() string { return s.log.String() }

// Client is a new client of the server, closed when the test ends.
func (s *Server) Client(opts ...client.Option) *client.Client {
	s.t.Helper()
	c, err := client.Dial(s.t.Context(), s.Addr, opts...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return c
}
