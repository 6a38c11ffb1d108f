// Package cassandra owns the Cassandra nodes of tests: real ones, made by cassandra.sh of this directory.
package cassandra

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	requiredEnv = "COLUMBA_CASSANDRA"     // "required": tests without Cassandra fail
	jarsEnv     = "COLUMBA_CASSANDRA_DIR" // where the jars are kept between runs

	installTime = 5 * time.Minute
	startTime   = 4 * time.Minute // 3 s on a machine that does nothing else
	stopTime    = 20 * time.Second
)

// errMissing means that a tool is not there.
var errMissing = errors.New("a tool is missing")

// Nodes are those of one test binary. They end with the binary, whatever becomes of it.
type Nodes struct {
	once    sync.Once
	address string
	err     error

	dir   string
	stop  chan struct{}
	ended chan struct{}
}

// Main is for TestMain: it runs the tests, ends the nodes that they started, and returns the exit code.
func (n *Nodes) Main(m *testing.M) int {
	defer n.close()
	return m.Run()
}

// Address returns the address of one node, which is started for the first test that asks. A test is skipped where Java or Maven
// are missing, and fails there if COLUMBA_CASSANDRA=required. It fails if the node does not start.
func (n *Nodes) Address(t *testing.T) string {
	t.Helper()
	n.once.Do(func() { n.address, n.err = n.start() })
	if errors.Is(n.err, errMissing) && os.Getenv(requiredEnv) != "required" {
		text := fmt.Sprintf("SKIPPED, NOT TESTED AGAINST CASSANDRA: %v", n.err)
		fmt.Fprintln(os.Stderr, text)
		t.Skip(text)
	}
	if n.err != nil {
		t.Fatalf("start Cassandra: %v", n.err)
	}
	return n.address
}

// start installs Cassandra if need be, and starts one node.
func (n *Nodes) start() (string, error) {
	script, err := scriptPath()
	if err != nil {
		return "", err
	}
	jars, err := jarsDir()
	if err != nil {
		return "", err
	}
	if err := run(installTime, script, "install", jars); err != nil {
		return "", err
	}
	if n.dir, err = os.MkdirTemp("", "columba-cassandra-"); err != nil {
		return "", err
	}
	if err := os.Symlink(filepath.Join(jars, "lib"), filepath.Join(n.dir, "lib")); err != nil {
		return "", err
	}
	ip, port, err := freeAddress()
	if err != nil {
		return "", err
	}
	if err := n.spawn(script, ip, port); err != nil {
		return "", err
	}
	if err := n.await(net.JoinHostPort(ip, port)); err != nil {
		return "", fmt.Errorf("%w\n%s", err, n.logs())
	}
	return net.JoinHostPort(ip, port), nil
}

// spawn starts the node as a child of a thread that lives as long as the node: the kernel kills the node when that thread ends, and
// so when this process does.
func (n *Nodes) spawn(script, ip, port string) error {
	n.stop, n.ended = make(chan struct{}), make(chan struct{})
	started := make(chan error, 1)
	go func() {
		defer close(n.ended)
		runtime.LockOSThread()
		var out bytes.Buffer
		node := exec.Command(script, "run", n.dir, "node", "--listen", ip, "--cql", port)
		node.Stdout, node.Stderr = &out, &out
		node.SysProcAttr = dieWithParent()
		err := node.Start()
		started <- err
		if err != nil {
			return
		}
		exited := make(chan struct{})
		go func() {
			defer close(exited)
			node.Wait()
		}()
		select {
		case <-exited:
			os.WriteFile(filepath.Join(n.dir, "out"), out.Bytes(), 0o644)
			return
		case <-n.stop:
		}
		node.Process.Signal(syscall.SIGTERM)
		select {
		case <-exited:
		case <-time.After(stopTime):
			node.Process.Kill()
			<-exited
		}
	}()
	return <-started
}

// await waits until the node answers.
func (n *Nodes) await(address string) error {
	late := time.After(startTime)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-n.ended:
			return errors.New("the node ended before it answered")
		case <-late:
			return fmt.Errorf("the node does not answer after %s", startTime)
		case <-tick.C:
		}
		// The log must say it, too: another process may answer on the port.
		text, err := os.ReadFile(filepath.Join(n.dir, "node/log/system.log"))
		if err != nil || !bytes.Contains(text, []byte("Starting listening for CQL clients")) {
			continue
		}
		if conn, err := net.DialTimeout("tcp", address, time.Second); err == nil {
			return conn.Close()
		}
	}
}

// logs returns what the node said last.
func (n *Nodes) logs() string {
	out, _ := os.ReadFile(filepath.Join(n.dir, "out"))
	text, _ := os.ReadFile(filepath.Join(n.dir, "node/log/system.log"))
	const most = 4 << 10
	return string(out) + string(text[max(len(text)-most, 0):])
}

// close ends the node and removes what it wrote.
func (n *Nodes) close() {
	if n.stop != nil {
		close(n.stop)
		<-n.ended
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
func scriptPath() (string, error) {
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		return "", errors.New("the path of the sources is not known")
	}
	path := filepath.Join(filepath.Dir(file), "cassandra.sh")
	_, err := os.Stat(path)
	return path, err
}

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
