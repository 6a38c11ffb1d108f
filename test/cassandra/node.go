// Package cassandra owns the Cassandra nodes of tests: real ones, made by cassandra.sh of this directory.
package cassandra

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	wantedEnv = "COLUMBA_CASSANDRA"     // "required": tests without Cassandra fail; "skip": none is started
	jarsEnv   = "COLUMBA_CASSANDRA_DIR" // where the jars are kept between runs

	installTime = 5 * time.Minute
	startTime   = 4 * time.Minute // 3 s on a machine that does nothing else
)

//go:embed cassandra.sh
var script []byte

// errMissing means that a tool is not there, that Maven cannot get the jars, or that nobody wants a node.
var errMissing = errors.New("no Cassandra can be had")

// Nodes are those of one test binary. They end with the binary, whatever becomes of it.
type Nodes struct {
	once     sync.Once
	err      error
	script   string
	dir      string
	ip, port string
	process  *process
}

// Main is for TestMain: it runs the tests, ends the nodes that they started, and returns the exit code.
func (n *Nodes) Main(m *testing.M) int {
	defer n.close()
	return m.Run()
}

// Address returns the address of one node, which is started for the first test that asks. A test is skipped where Java
// or Maven are missing, or Maven cannot get the jars. It fails there if COLUMBA_CASSANDRA=required, and wherever the node
// does not start. With COLUMBA_CASSANDRA=skip it is skipped everywhere.
func (n *Nodes) Address(t *testing.T) string {
	t.Helper()
	n.once.Do(func() { n.err = n.start() })
	if errors.Is(n.err, errMissing) && os.Getenv(wantedEnv) != "required" {
		text := fmt.Sprintf("SKIPPED, NOT TESTED AGAINST CASSANDRA: %v", n.err)
		fmt.Fprintln(os.Stderr, text)
		t.Skip(text)
	}
	if n.err != nil {
		t.Fatalf("start Cassandra: %v", n.err)
	}
	return net.JoinHostPort(n.ip, n.port)
}

// Missing reports whether no test has asked for a node, or none could be started.
func (n *Nodes) Missing() bool { return n.process == nil }

// Kill ends the node at once, as a power cut does. Its data stay.
func (n *Nodes) Kill() { n.process.end(syscall.SIGKILL) }

// Revive starts the node that was killed, with its data, and waits until it answers.
func (n *Nodes) Revive(t *testing.T) {
	t.Helper()
	if err := n.run(); err != nil {
		t.Fatalf("start Cassandra again: %v", err)
	}
}

// start installs Cassandra if need be, and starts one node.
func (n *Nodes) start() (err error) {
	if os.Getenv(wantedEnv) == "skip" {
		return fmt.Errorf("%w: %s=skip", errMissing, wantedEnv)
	}
	if n.dir, err = os.MkdirTemp("", "columba-cassandra-"); err != nil {
		return err
	}
	n.script = filepath.Join(n.dir, "cassandra.sh")
	if err := os.WriteFile(n.script, script, 0o700); err != nil {
		return err
	}
	jars, err := jarsDir()
	if err != nil {
		return err
	}
	if err := run(installTime, n.script, "install", jars); err != nil {
		return err
	}
	if err := os.Symlink(filepath.Join(jars, "lib"), filepath.Join(n.dir, "lib")); err != nil {
		return err
	}
	if n.ip, n.port, err = freeAddress(); err != nil {
		return err
	}
	return n.run()
}

// run starts the node and waits until it answers. The node waits for its disk for longer than by default: on a machine
// that does much else a sync takes seconds.
func (n *Nodes) run() error {
	p, err := spawn(n.script, "run", n.dir, "node", "--listen", n.ip, "--cql", n.port,
		"--yaml", "write_request_timeout: 8s", "--yaml", "read_request_timeout: 8s", "--yaml", "cas_contention_timeout: 8s")
	if err != nil {
		return err
	}
	n.process = p
	late := time.After(startTime)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for !n.answers() {
		select {
		case <-p.ended:
			return fmt.Errorf("the node ended before it answered\n%s%s", p.out.Bytes(), n.log())
		case <-late:
			return fmt.Errorf("the node does not answer after %s\n%s", startTime, n.log())
		case <-tick.C:
		}
	}
	return nil
}

// answers reports whether the node serves clients. Its log must say it, too: another process may answer on the port.
func (n *Nodes) answers() bool {
	if !strings.Contains(n.log(), "Starting listening for CQL clients") {
		return false
	}
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(n.ip, n.port), time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// log returns what the node said last.
func (n *Nodes) log() string {
	text, _ := os.ReadFile(filepath.Join(n.dir, "node/log/system.log"))
	const most = 16 << 10
	return string(text[max(len(text)-most, 0):])
}

// close ends the node and removes what it wrote.
func (n *Nodes) close() {
	if n.process != nil {
		n.process.end(syscall.SIGTERM)
	}
	if n.dir != "" {
		os.RemoveAll(n.dir)
	}
}

// run runs the script and returns what it said if it fails; errMissing.
func run(limit time.Duration, script string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	out, err := exec.CommandContext(ctx, script, args...).CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 3 {
		return fmt.Errorf("%w: %s", errMissing, strings.TrimSpace(string(out)))
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", script, args[0], err, out)
	}
	return nil
}

// scriptPath is cassandra.sh, which lies beside this file.
func jarsDir() (string, error) {
	if dir := os.Getenv(jarsEnv); dir != "" {
		return dir, nil
	}
	cache, err := os.UserCacheDir()
	return filepath.Join(cache, "columba", "cassandra"), err
}

// freeAddress is a loopback address that nobody else uses: the ports between nodes are the same on all of them.
func freeAddress() (ip, port string, err error) {
	for range 20 {
		ip = fmt.Sprintf("127.%d.%d.%d", 64+rand.N(128), rand.N(256), 1+rand.N(254))
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort(ip, "0")); err != nil {
			continue
		}
		_, port, err = net.SplitHostPort(l.Addr().String())
		return ip, port, errors.Join(err, l.Close())
	}
	return "", "", fmt.Errorf("no loopback address is free: %w", err)
}
