package cassandra

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const startTime = 4 * time.Minute // 3 s on a machine that does nothing else

// Node is one Cassandra node. Its methods are for one goroutine at a time.
type Node struct {
	nodes    *Nodes
	name     string
	ip, port string
	prefix   []string // command that runs the node elsewhere, and becomes it by exec
	limit    string   // of a request between nodes
	process  *child   // nil: none was started yet
}

// Address is where clients reach the node.
func (n *Node) Address() string { return net.JoinHostPort(n.ip, n.port) }

// Kill ends the node at once, as kill -9 does. Its data stay.
func (n *Node) Kill(t *testing.T) { n.away(t, syscall.SIGKILL) }

// Stop ends the node as an operator does, and waits for its end. Its data stay.
func (n *Node) Stop(t *testing.T) { n.away(t, syscall.SIGTERM) }

// away ends the node until Revive, or until the test ends.
func (n *Node) away(t *testing.T, how syscall.Signal) {
	n.end(how)
	t.Cleanup(func() {
		if !n.runs() {
			n.Revive(t)
		}
	})
}

// Revive starts the node that was killed or stopped, with its data, and waits until it answers and knows the others.
func (n *Node) Revive(t *testing.T) {
	t.Helper()
	for _, step := range []func() error{n.spawn, n.wait, n.nodes.together} {
		if err := step(); err != nil {
			t.Fatalf("start Cassandra again: %v", err)
		}
	}
}

// Pause lets the node stand still, until Resume or the end of the test: it neither answers nor closes connections.
func (n *Node) Pause(t *testing.T) {
	n.process.signal(syscall.SIGSTOP)
	t.Cleanup(n.Resume)
}

// Resume lets a paused node go on, with what it has received meanwhile.
func (n *Node) Resume() { n.process.signal(syscall.SIGCONT) }

// runs reports whether the node was started and has not ended.
func (n *Node) runs() bool {
	if n.process == nil {
		return false
	}
	select {
	case <-n.process.ended:
		return false
	default:
		return true
	}
}

func (n *Node) end(how syscall.Signal) {
	if n.process != nil {
		n.process.end(how)
	}
}

// spawn starts the process of the node. The node waits for its disk for longer than by default: on a machine that does
// much else a sync takes seconds.
func (n *Node) spawn() (err error) {
	var seeds []string
	for _, other := range n.nodes.all {
		seeds = append(seeds, other.ip)
	}
	line := append(slices.Clone(n.prefix), n.nodes.script, "run", n.nodes.dir, n.name, "--listen", n.ip, "--cql", n.port, "--seeds", strings.Join(seeds, ","))
	for _, timeout := range []string{"write_request_timeout", "read_request_timeout", "cas_contention_timeout"} {
		line = append(line, "--yaml", timeout+": "+n.limit)
	}
	line = append(line, n.nodes.options...)
	n.process, err = spawn(line[0], line[1:]...)
	return err
}

// wait returns when the node answers, or will not.
func (n *Node) wait() error {
	late := time.After(startTime)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for !n.answers() {
		select {
		case <-n.process.ended:
			return fmt.Errorf("%s ended before it answered\n%s%s", n.name, n.process.out.Bytes(), n.last())
		case <-late:
			return fmt.Errorf("%s does not answer after %s\n%s", n.name, startTime, n.last())
		case <-tick.C:
		}
	}
	return nil
}

// answers reports whether the node serves clients. Its log must say it, too: another process may answer on the port.
func (n *Node) answers() bool {
	log := n.log()
	if !bytes.Contains(log, []byte("Starting listening for CQL clients")) || n.nodes.secured && !bytes.Contains(log, []byte(firstUser)) {
		return false
	}
	conn, err := net.DialTimeout("tcp", n.Address(), time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// log returns all that the node said since it was started.
func (n *Node) log() []byte {
	text, _ := os.ReadFile(filepath.Join(n.nodes.dir, n.name, "log/system.log"))
	return text
}

// last returns what the node said last.
func (n *Node) last() []byte {
	const most = 16 << 10
	text := n.log()
	return text[max(len(text)-most, 0):]
}
