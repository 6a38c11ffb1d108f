package demo

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/columbamq/columba/core"
)

// process is a child of the demo; it is always joined.
type process struct{ cmd *exec.Cmd }

func (p *process) pid() int { return p.cmd.Process.Pid }

// kill is kill -9.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill process %d: %w", p.pid(), err)
	}
	_ = p.cmd.Wait() // says that it was killed
	return nil
}

// server is the demo's own `columba serve`.
type server struct {
	process
	program, data string
	addr          string
	log           io.Writer
}

const (
	readyTimeout = 20 * time.Second
	drainTimeout = 10 * time.Second
)

func startServer(ctx context.Context, program, data string, log io.Writer) (*server, error) {
	s := &server{program: program, data: data, addr: "127.0.0.1:0", log: log}
	return s, s.start(ctx)
}

// start runs the server and waits for its ready line, which names the port.
func (s *server) start(ctx context.Context) error {
	s.cmd = exec.Command(s.program, "serve", "--data", s.data, "--listen", s.addr, "--log-level", "warn")
	s.cmd.Stderr = s.log
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	ready := make(chan string, 1)
	go func() { // ends with the pipe, that is with the process
		line, _ := bufio.NewReader(stdout).ReadString('\n')
		ready <- line
		_, _ = io.Copy(io.Discard, stdout)
	}()
	select {
	case line := <-ready:
		for _, field := range strings.Fields(line) {
			if addr, ok := strings.CutPrefix(field, "addr="); ok {
				s.addr = addr
				return nil
			}
		}
		_ = s.cmd.Wait()
		return core.Errorf(core.CodeUnavailable, "the server ended without a ready line")
	case <-time.After(readyTimeout):
		_ = s.kill()
		return core.Errorf(core.CodeDeadline, "the server was not ready within %s", readyTimeout)
	case <-ctx.Done():
		_ = s.kill()
		return context.Cause(ctx)
	}
}

// restart kills the server and starts it on the same directory and port.
func (s *server) restart(ctx context.Context) error {
	if err := s.kill(); err != nil {
		return err
	}
	return s.start(ctx)
}

// stop asks the server to drain, and insists when it does not.
func (s *server) stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop the server: %w", err)
	}
	done := make(chan error, 1)
	go func() { done <- s.cmd.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("server: %w", err)
		}
		return nil
	case <-time.After(drainTimeout):
		_ = s.cmd.Process.Kill()
		<-done
		return core.Errorf(core.CodeDeadline, "the server did not stop within %s", drainTimeout)
	}
}

// startWorker runs a worker of the hash group as a process.
func startWorker(program, addr, dir string, log io.Writer) (*process, error) {
	p := &process{cmd: exec.Command(program, "demo", "worker", "--addr", addr, "--dir", dir)}
	p.cmd.Stderr = log
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	return p, nil
}
