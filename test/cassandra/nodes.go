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

	"github.com/columbamq/columba/test/process"
)

const (
	wantedEnv = "COLUMBA_CASSANDRA"       // "required": tests without Cassandra fail; "skip": none is started
	countEnv  = "COLUMBA_CASSANDRA_NODES" // "3": a cluster of three nodes; "1", "": one node
	jarsEnv   = "COLUMBA_CASSANDRA_DIR"   // where the jars are kept between runs

	installTime = 5 * time.Minute
)

//go:embed cassandra.sh
var script []byte

// errMissing means that a tool is not there, that Maven cannot get the jars, or that nobody wants a node.
var errMissing = errors.New("no Cassandra can be had")

// Nodes are the nodes of one test binary: a single one, or three that are one cluster. They end with the binary, also
// when it is killed. Tests share them: what a test does to a node is undone when the test ends.
type Nodes struct {
	once   sync.Once
	err    error
	script string
	dir    string
	places []process.Net // of the nodes; nil: addresses of loopback
	all    []*Node

	secured bool     // see Secured
	options []string // of each node, for the script
}

// Main is for TestMain: it runs the tests, ends the nodes that they started, and returns the exit code.
func (n *Nodes) Main(m *testing.M) int {
	defer n.close()
	return m.Run()
}

// Start returns the nodes, which are started for the first test that asks: COLUMBA_CASSANDRA_NODES=3 wants three, and
// one is the default. They answer, know each other, and agree on the schema. A test is skipped where Java or Maven are
// missing, or Maven cannot get the jars. It fails there if COLUMBA_CASSANDRA=required, and wherever a node does not
// start. With COLUMBA_CASSANDRA=skip it is skipped everywhere.
func (n *Nodes) Start(t *testing.T) []*Node {
	t.Helper()
	n.once.Do(func() { n.err = n.start() })
	if errors.Is(n.err, errMissing) && os.Getenv(wantedEnv) != "required" {
		skip(t, "SKIPPED, NOT TESTED AGAINST CASSANDRA: %v", n.err)
	}
	if n.err != nil {
		t.Fatalf("start Cassandra: %v", n.err)
	}
	return n.all
}

// Three is Start for a test that needs three nodes: where there is one, the test is skipped.
func (n *Nodes) Three(t *testing.T) []*Node {
	t.Helper()
	all := n.Start(t)
	if len(all) != 3 {
		skip(t, "SKIPPED, NOT TESTED ON THREE CASSANDRA NODES: set %s=3", countEnv)
	}
	return all
}

// In starts nodes for one test alone, one in each place, as one cluster. They have 2 s for a request, so that a cut
// shows soon. The test is skipped or fails as in Start.
func (n *Nodes) In(t *testing.T, places []process.Net) []*Node {
	t.Helper()
	apart := &Nodes{places: places}
	t.Cleanup(apart.close)
	return apart.Start(t)
}

// ReviveAll starts the nodes that were killed or stopped, all at once, and waits until they are a cluster.
func (n *Nodes) ReviveAll(t *testing.T) {
	t.Helper()
	if err := n.startAll(); err != nil {
		t.Fatalf("start Cassandra again: %v", err)
	}
}

// Address returns the address of the first node of Start.
func (n *Nodes) Address(t *testing.T) string {
	t.Helper()
	return n.Start(t)[0].Address()
}

// skip also tells those who do not run their tests with -v.
func skip(t *testing.T, format string, args ...any) {
	t.Helper()
	text := fmt.Sprintf(format, args...)
	fmt.Fprintln(os.Stderr, text)
	t.Skip(text)
}

// start installs Cassandra if need be, and starts the nodes.
func (n *Nodes) start() (err error) {
	if os.Getenv(wantedEnv) == "skip" {
		return fmt.Errorf("%w: %s=skip", errMissing, wantedEnv)
	}
	count := max(1, len(n.places))
	switch text := os.Getenv(countEnv); text {
	case "", "1":
	case "3":
		if !n.secured {
			count = max(3, len(n.places))
		}
	default:
		return fmt.Errorf("%s is %q; it may be 1 or 3", countEnv, text)
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
	if n.all, err = n.place(count); err != nil {
		return err
	}
	if n.secured {
		if n.options, err = secure(n.dir, n.all[0].ip); err != nil {
			return err
		}
	}
	return n.startAll()
}

// startAll starts the nodes that do not run, all at once, and waits until they are a cluster.
func (n *Nodes) startAll() error {
	for _, node := range n.all {
		if node.runs() {
			continue
		}
		if err := node.spawn(); err != nil {
			return err
		}
	}
	for _, node := range n.all {
		if err := node.wait(); err != nil {
			return err
		}
	}
	return n.together()
}

// close ends the nodes and removes what they wrote. Nobody needs their data any more: they are killed.
func (n *Nodes) close() {
	for _, node := range n.all {
		node.end(syscall.SIGKILL)
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

// jarsDir is where the jars are kept.
func jarsDir() (string, error) {
	if dir := os.Getenv(jarsEnv); dir != "" {
		return dir, nil
	}
	cache, err := os.UserCacheDir()
	return filepath.Join(cache, "columba", "cassandra"), err
}

// place gives each node a loopback address that nobody else uses, and all the same port for clients: the driver wants
// that, and the port between nodes is the same, too.
func (n *Nodes) place(count int) (all []*Node, err error) {
	for i, p := range n.places {
		all = append(all, &Node{nodes: n, name: fmt.Sprint("node", i+1), ip: p.Host, port: "9042", prefix: p.Prefix, limit: "2s"})
	}
	if len(all) > 0 {
		return all, nil
	}
	port := "0"
	for range 20 * count {
		ip := fmt.Sprintf("127.%d.%d.%d", 64+rand.N(128), rand.N(256), 1+rand.N(254))
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort(ip, port)); err != nil {
			continue
		}
		_, port, err = net.SplitHostPort(l.Addr().String())
		if err := errors.Join(err, l.Close()); err != nil {
			return nil, err
		}
		if all = append(all, &Node{nodes: n, name: fmt.Sprint("node", len(all)+1), ip: ip, port: port, limit: "8s"}); len(all) == count {
			return all, nil
		}
	}
	return nil, fmt.Errorf("no loopback address is free: %w", err)
}
