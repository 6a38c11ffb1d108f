package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/columbamq/columba/bench/machine"
	"github.com/columbamq/columba/client"
)

// patience is how long a process or a call may take before the run is given up.
const patience = 90 * time.Second

// server is a running `columba serve`.
type server struct {
	addr   string
	gossip string // of a cluster's process
	data   string
	flags  []string // beyond --data and --listen
	pid    int

	bin  string
	cmd  *exec.Cmd
	out  io.ReadCloser
	talk bytes.Buffer
}

var readyLine = regexp.MustCompile(`^ready addr=(\S+) .*?(?: gossip=(\S+))?\n$`)

// server starts one on a new data directory.
func (r *rig) server(name string) (*server, error) {
	s := &server{bin: r.columba, data: filepath.Join(r.dir, name)}
	_, err := s.start(r.ctx)
	return s, err
}

// start returns how long it took until the ready line.
func (s *server) start(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	s.talk.Reset()
	s.cmd = machine.Command(ctx, s.bin, append([]string{"serve", "--data", s.data, "--listen", "127.0.0.1:0", "--log-level", "warn"}, s.flags...)...)
	s.cmd.Stderr = &s.talk
	var err error
	if s.out, err = s.cmd.StdoutPipe(); err != nil {
		return 0, err
	}
	if err := s.cmd.Start(); err != nil {
		return 0, fmt.Errorf("%w; build it with: make build", err)
	}
	s.pid = s.cmd.Process.Pid
	guard := time.AfterFunc(patience, func() { _ = s.cmd.Process.Kill() })
	defer guard.Stop()
	line, err := bufio.NewReader(s.out).ReadString('\n')
	took := time.Since(began)
	m := readyLine.FindStringSubmatch(line)
	if err != nil || m == nil {
		s.stop()
		return 0, fmt.Errorf("server said %q instead of being ready: %s", line, s.talk.String())
	}
	s.addr, s.gossip = m[1], m[2]
	return took, nil
}

// stop drains the server, so that its directory may be used again or removed.
func (s *server) stop() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	guard := time.AfterFunc(30*time.Second, func() { _ = s.cmd.Process.Kill() })
	defer guard.Stop()
	_, _ = io.Copy(io.Discard, s.out)
	_ = s.cmd.Wait()
	s.cmd = nil
}

// kill ends the server as a crash would.
func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	_, _ = io.Copy(io.Discard, s.out)
	_ = s.cmd.Wait()
	s.cmd = nil
}

// remove stops the server and deletes its directory.
func (s *server) remove() {
	s.stop()
	os.RemoveAll(s.data)
}

func (s *server) dial(ctx context.Context) (*client.Client, error) { return client.Dial(ctx, s.addr) }

// get reads a page of the server.
func (s *server) get(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.addr+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s", path, resp.Status)
	}
	return body, err
}

// metrics by name, with labels as they are printed.
type metrics map[string]float64

func (s *server) metrics(ctx context.Context) (metrics, error) {
	text, err := s.get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	return parseMetrics(string(text)), nil
}

func parseMetrics(text string) metrics {
	m := make(metrics)
	for line := range strings.Lines(text) {
		at := strings.LastIndexByte(strings.TrimSpace(line), ' ')
		if at < 0 || line[0] == '#' {
			continue
		}
		if v, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64); err == nil {
			m[line[:at]] = v
		}
	}
	return m
}

// memory is the resident set in bytes.
func (s *server) memory() (float64, error) { return s.status("VmRSS:") }

// mostMemory is the largest resident set since the process began, in bytes.
func (s *server) mostMemory() (float64, error) { return s.status("VmHWM:") }

// status reads a size of the process, in bytes.
func (s *server) status(field string) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kib * 1024, err
		}
	}
	return 0, fmt.Errorf("no %s in /proc/%d/status", field, s.pid)
}

// cpu is the CPU time the server has used, in seconds.
func (s *server) cpu() (float64, error) { return machine.CPU(s.pid) }
