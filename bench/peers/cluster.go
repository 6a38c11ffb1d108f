package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/columbamq/columba/bench/machine"
)

const (
	nodes     = 3
	portTries = 3 // another program may take a port before the server does
)

// errNotInstalled says that a peer cannot run on this machine.
var errNotInstalled = errors.New("not installed")

// site is where clusters run.
type site struct {
	columba string // the binary
	peers   string // the directory of what install.sh installs
	dir     string // scratch, on the disk that is measured
	heap    string // of each JVM
}

// cluster is the running servers of one broker.
type cluster struct {
	addrs []string // for clients
	dir   string
	procs []*server
}

// server is one process of a cluster.
type server struct {
	cmd  *exec.Cmd
	log  string        // the path of its output
	done chan struct{} // closed when it has ended
}

// start runs a cluster on new directories. It begins anew when a port was taken meanwhile.
func (s *site) start(ctx context.Context, b broker) (*cluster, error) {
	var errs []error
	for range portTries {
		dir, err := os.MkdirTemp(s.dir, b.name)
		if err != nil {
			return nil, err
		}
		c := &cluster{dir: dir}
		within, cancel := context.WithTimeout(ctx, 2*patience)
		err = b.serve(within, s, c, b.durable)
		cancel()
		if err == nil {
			return c, nil
		}
		c.stop()
		errs = append(errs, err)
		if ctx.Err() != nil || errors.Is(err, errNotInstalled) {
			break
		}
	}
	return nil, fmt.Errorf("%s: %w", b.name, errors.Join(errs...))
}

// run starts one server; its output goes to a file of that name. The process ends with this one at the latest.
func (c *cluster) run(name string, env []string, args ...string) (*server, error) {
	s := &server{log: filepath.Join(c.dir, name+".log"), done: make(chan struct{})}
	log, err := os.Create(s.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	s.cmd = machine.Command(context.Background(), args[0], args[1:]...)
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = c.dir, log, log
	s.cmd.Env = append(s.cmd.Env, env...)
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	c.procs = append(c.procs, s)
	go func() { // ends with the process; stop joins it
		_ = s.cmd.Wait()
		close(s.done)
	}()
	return s, nil
}

// await calls ready until it says so, the server ends, or ctx does.
func (s *server) await(ctx context.Context, ready func() bool) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ready() {
		select {
		case <-tick.C:
		case <-s.done:
			return fmt.Errorf("%s ended: %s", filepath.Base(s.cmd.Path), s.tail())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %s", filepath.Base(s.cmd.Path), s.tail())
		}
	}
	return nil
}

// awaitPort waits until somebody listens.
func (s *server) awaitPort(ctx context.Context, addr string) error {
	return s.await(ctx, func() bool {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		return err == nil && conn.Close() == nil
	})
}

// awaitLine waits until the output has a match, and returns its groups.
func (s *server) awaitLine(ctx context.Context, line *regexp.Regexp) (groups []string, err error) {
	err = s.await(ctx, func() bool {
		text, _ := os.ReadFile(s.log)
		groups = line.FindStringSubmatch(string(text))
		return groups != nil
	})
	return groups, err
}

// tail is the end of the output.
func (s *server) tail() string {
	text, _ := os.ReadFile(s.log)
	return string(bytes.TrimSpace(text[max(0, len(text)-2000):]))
}

// addr is the addresses as a job has them.
func (c *cluster) addr() string { return strings.Join(c.addrs, ",") }

// cpu is what all servers have used, in seconds.
func (c *cluster) cpu() (sum float64, err error) {
	for _, s := range c.procs {
		v, err := machine.CPU(s.cmd.Process.Pid)
		if err != nil {
			return 0, fmt.Errorf("a server has ended: %s: %w", s.tail(), err)
		}
		sum += v
	}
	return sum, nil
}

// stop ends the servers with what they started, and deletes their directories.
func (c *cluster) stop() {
	var wg sync.WaitGroup
	for _, s := range c.procs {
		wg.Go(func() {
			_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) // its group
			<-s.done
		})
	}
	wg.Wait()
	os.RemoveAll(c.dir)
}

// subdir makes a directory of the cluster.
func (c *cluster) subdir(name string) (string, error) {
	dir := filepath.Join(c.dir, name)
	return dir, os.MkdirAll(dir, 0o755)
}

// write makes a file of the cluster and returns its path.
func (c *cluster) write(name, text string) (string, error) {
	path := filepath.Join(c.dir, name)
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// port of an address.
func port(addr string) string {
	_, p, _ := strings.Cut(addr, ":")
	return p
}
