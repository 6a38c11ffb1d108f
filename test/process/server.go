package process

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
)

// Patience is how long anything may take before a test gives up on it.
const Patience = 60 * time.Second

// Server is a running `columba serve`. Not safe for concurrent use.
type Server struct {
	Name string // in the logs of the test
	Addr string // where others reach it, also after the next start
	Data string

	listen string // where it listens, also after the next start

	t       testing.TB
	program string
	prefix  []string // command that runs the program elsewhere, such as in a network namespace; it becomes the program by exec
	from    []string // the same of command lines: see From
	flags   []string
	cmd     *exec.Cmd
	log     *Buffer
	first   chan string   // the first line of stdout; closed with it
	done    chan struct{} // closed when the process has ended
}

var readyLine = regexp.MustCompile(`^ready addr=(\S+) roles=(\S+) data=(\S+)( gossip=\S+)?$`)

// StartServer runs a server on a new data directory and a free port until the test ends.
func StartServer(t testing.TB, flags ...string) *Server {
	t.Helper()
	return StartProgram(t, Program, flags...)
}

// StartProgram is StartServer with another build of the binary.
func StartProgram(t testing.TB, program string, flags ...string) *Server {
	t.Helper()
	s := &Server{
		Name: "server", t: t, program: program, flags: flags, log: &Buffer{},
		Data: filepath.Join(t.TempDir(), "data"), listen: address(FreePort(t)),
	}
	s.Addr = s.listen
	s.end()
	s.Start()
	return s
}

// At is a server that somebody else runs: for commands and clients only.
func At(t testing.TB, addr string) *Server { return &Server{Name: addr, Addr: addr, t: t} }

// end kills the server when the test ends, and shows its log when that failed.
func (s *Server) end() {
	s.t.Cleanup(func() {
		s.Kill()
		if s.t.Failed() {
			s.t.Logf("log of %s, its end:\n%s", s.Name, s.log.Tail(2<<10))
		}
	})
}

// Start runs the server on its directory and port and waits for its ready line.
func (s *Server) Start() {
	s.t.Helper()
	s.Begin()
	s.Await()
}

// Begin runs the server on its directory and port; Await has to follow.
func (s *Server) Begin() {
	s.t.Helper()
	args := slices.Concat(s.prefix, []string{s.program, "serve", "--data", s.Data, "--listen", s.listen}, s.flags)
	s.cmd = exec.Command(args[0], args[1:]...)
	s.cmd.Env = []string{"HOME=" + os.TempDir(), "PATH=" + os.Getenv("PATH")}
	s.cmd.Stderr = s.log
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.first, s.done = make(chan string, 1), make(chan struct{})
	go func(cmd *exec.Cmd, first chan string, done chan struct{}) { // joined by Kill and Stop
		in := bufio.NewScanner(out)
		for n := 0; in.Scan(); n++ {
			if n == 0 {
				first <- in.Text()
			}
		}
		close(first)
		_ = cmd.Wait()
		close(done)
	}(s.cmd, s.first, s.done)
}

// Await waits for the ready line of a server that was begun.
func (s *Server) Await() {
	s.t.Helper()
	s.AwaitWithin(Patience)
}

// AwaitWithin is Await for a server that may take longer, or has to be faster.
func (s *Server) AwaitWithin(limit time.Duration) {
	s.t.Helper()
	select {
	case line := <-s.first:
		m := readyLine.FindStringSubmatch(line)
		if m == nil {
			s.Kill()
			s.t.Fatalf("%s said %q instead of being ready; its log:\n%s", s.Name, line, s.log)
		}
		s.Addr = m[1]
	case <-time.After(limit):
		s.Kill()
		s.t.Fatalf("%s is not ready after %s; its log:\n%s", s.Name, limit, s.log)
	}
}

// Under has the next starts run by a command that becomes the server by exec; without one, directly.
func (s *Server) Under(prefix ...string) { s.prefix = prefix }

// From has the command lines of Run and Launch run by a command that becomes them by exec, as in a network namespace.
func (s *Server) From(prefix ...string) *Server {
	s.from = prefix
	return s
}

// With adds flags to the next start.
func (s *Server) With(flags ...string) { s.flags = append(s.flags, flags...) }

// Pid is the process's id; 0 when it does not run.
func (s *Server) Pid() int {
	if s.cmd == nil {
		return 0
	}
	return s.cmd.Process.Pid
}

// Pause is SIGSTOP: the process stands still with all it holds, until Continue or Kill.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Continue is SIGCONT.
func (s *Server) Continue() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if s.cmd == nil {
		s.t.Fatalf("%s does not run", s.Name)
	}
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatalf("%s: %s: %v", sig, s.Name, err)
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
		s.t.Errorf("%s still runs %s after SIGTERM", s.Name, Patience)
	}
	code := s.cmd.ProcessState.ExitCode()
	s.cmd = nil
	return code
}

// Ended waits until the server has ended by itself and returns its exit code.
func (s *Server) Ended() int {
	s.t.Helper()
	select {
	case <-s.done:
	case <-time.After(Patience):
		s.t.Fatalf("%s still runs after %s; its log:\n%s", s.Name, Patience, s.log)
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
		s.t.Fatalf("%s has ended: %s; its log:\n%s", s.Name, s.cmd.ProcessState, s.log)
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
