package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	startTimeout = time.Minute
	drainTimeout = 20 * time.Second // of the processes of one kind, before they are killed
	gossipOffset = 1000
)

// member is one process of the cluster.
type member struct {
	name, addr, gossip, zone, data, log string

	host string // its id in the cluster, once it is up

	cmd   *exec.Cmd
	ready chan bool     // true: it said so; closed when it says nothing more
	done  chan struct{} // closed when it has ended
}

func (m *member) pid() int { return m.cmd.Process.Pid }

// cluster is all processes, in the order in which they are started. Not safe for concurrent use.
type cluster struct {
	o       options
	members []*member
	ended   chan *member // that ended by themselves
}

func newCluster(o options) *cluster {
	c := &cluster{o: o}
	controllers := []string{"controller"}
	if o.metadata != "" {
		controllers = []string{"controller1", "controller2", "controller3"}
	}
	for _, name := range append(controllers, "store1", "store2", "store3", "input1", "input2", "output1", "output2") {
		port := o.port + len(c.members)
		c.members = append(c.members, &member{
			name: name, data: filepath.Join(o.data, name), log: filepath.Join(o.data, name+".log"),
			addr:   net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
			gossip: net.JoinHostPort("127.0.0.1", strconv.Itoa(port+gossipOffset)),
		})
	}
	for i, zone := range []string{"a", "b", "c"} {
		c.members[len(controllers)+i].zone = zone // of the stores
	}
	c.ended = make(chan *member, len(c.members))
	return c
}

// roles of a member, by the kind that its name says.
func (m *member) roles() string {
	switch kind := strings.TrimRight(m.name, "123456789"); kind {
	case "controller":
		return "controller,frontend"
	default:
		return kind + "host"
	}
}

// frontends are the addresses for commands and clients.
func (c *cluster) frontends() (addrs []string) {
	for _, m := range c.members {
		if strings.HasPrefix(m.name, "controller") {
			addrs = append(addrs, m.addr)
		}
	}
	return addrs
}

// start runs all processes and waits until each is ready and all are in the list of hosts.
func (c *cluster) start(ctx context.Context) error {
	for _, m := range c.members {
		if err := c.startOne(m); err != nil {
			return fmt.Errorf("start %s: %w", m.name, err)
		}
	}
	for _, m := range c.members {
		select {
		case ok := <-m.ready:
			if !ok {
				end := tail(m.log)
				if strings.Contains(end, "address already in use") { // its own advice, --listen, is none for this command
					end += "to take other ports: make cluster CLUSTERPORT=5000\n"
				}
				return fmt.Errorf("%s did not get ready; its log is %s, its end:\n%s", m.name, m.log, end)
			}
		case <-ctx.Done():
			return fmt.Errorf("%s was not ready within %s; its log is %s", m.name, startTimeout, m.log)
		}
	}
	return c.awaitHosts(ctx)
}

func (c *cluster) startOne(m *member) error {
	var join []string
	for _, other := range c.members {
		if other != m {
			join = append(join, other.gossip)
		}
	}
	args := []string{"serve", "--data", m.data, "--listen", m.addr, "--roles", m.roles(), "--gossip", m.gossip, "--join", strings.Join(join, ",")}
	if m.zone != "" {
		args = append(args, "--zone", m.zone)
	}
	if c.o.metadata != "" {
		args = append(args, "--metadata", c.o.metadata)
	}
	m.cmd = exec.Command(c.o.program, append(args, c.o.flags...)...)
	m.cmd.SysProcAttr = childAttributes() // a group of its own: ^C is for this process, which stops the others in order
	log, err := os.OpenFile(m.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	m.cmd.Stderr = log
	stdout, err := m.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := m.cmd.Start(); err != nil {
		m.cmd = nil
		return err
	}
	m.ready, m.done = make(chan bool, 1), make(chan struct{})
	go func() { // ends with the process; stop joins it
		in := bufio.NewScanner(stdout)
		for said := false; in.Scan(); {
			if !said && strings.HasPrefix(in.Text(), "ready ") {
				said = true
				m.ready <- true
			}
		}
		close(m.ready)
		_ = m.cmd.Wait()
		close(m.done)
		c.ended <- m
	}()
	return nil
}

// awaitHosts waits until `list hosts` has every member, and notes their ids.
func (c *cluster) awaitHosts(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		list := exec.CommandContext(ctx, c.o.program, "--addr", c.members[0].addr, "list", "hosts", "-o", "json")
		var said bytes.Buffer
		list.Stderr = &said
		out, err := list.Output()
		missing := len(c.members)
		if err == nil {
			missing = c.identify(out)
		}
		if missing == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d processes did not join within %s; `list hosts` says:\n%s%s", missing, len(c.members), startTimeout, out, said.String())
		}
	}
}

// identify notes who the members are, by the objects that `list hosts` printed, and counts those that are not in it.
func (c *cluster) identify(list []byte) (missing int) {
	ids := make(map[string]string)
	for dec := json.NewDecoder(bytes.NewReader(list)); ; {
		var h struct{ Host, Addr string }
		if dec.Decode(&h) != nil {
			break
		}
		ids[h.Addr] = h.Host
	}
	for _, m := range c.members {
		if m.host = ids[m.addr]; m.host == "" {
			missing++
		}
	}
	return missing
}

// stop drains all processes, those that need others first, and joins them.
func (c *cluster) stop(out io.Writer) error {
	var errs []error
	for _, kind := range []string{"output", "input", "store", "controller"} {
		var running []*member
		for _, m := range c.members {
			if m.cmd != nil && strings.HasPrefix(m.name, kind) {
				running = append(running, m)
				_ = m.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
			}
		}
		late := time.After(drainTimeout)
		for _, m := range running {
			select {
			case <-m.done:
			case <-late:
				errs = append(errs, fmt.Errorf("%s did not drain within %s and was killed; its log is %s", m.name, drainTimeout, m.log))
				late = time.After(0) // for the others too
				_ = m.cmd.Process.Kill()
				<-m.done
			}
		}
	}
	if len(errs) == 0 {
		fmt.Fprintln(out, "The cluster has stopped.")
	}
	return errors.Join(errs...)
}

// tail is the end of a log, as far as it can be read.
func tail(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-1000):])
}
