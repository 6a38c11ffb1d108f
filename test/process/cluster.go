package process

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Layout says what a cluster is made of. The zero one is three stores, two input hosts, two output hosts, and one
// process that is controller, frontend and metadata.
type Layout struct {
	Stores, Inputs, Outputs int
	Controllers             int // each with a frontend; 0 is 1. More than one need Metadata

	Metadata string               // URL of a Cassandra cluster with the schema; embedded when empty
	Program  string               // Program when empty
	Flags    []string             // of every process
	FlagsOf  func(i int) []string // more of process i; nil: none. The controllers come first, then stores, input and output hosts
	Data     func(i int) string   // the data directory of process i; nil, or "": one of its own
	Place    func(i int) Net      // where process i is; nil: on loopback. The controller is 0
	// Front is the address at which others reach process i, which listens on addr, such as that of a Proxy; nil: addr
	// itself.
	Front func(i int, addr string) string
}

// Net is where a process listens.
type Net struct {
	Host   string   // its address
	Prefix []string // command that runs another one there; it becomes the other by exec
}

// Cluster is a cluster of `columba serve` processes, each with a data directory of its own, that found each other by
// gossip. Commands and clients go to the Controller's address. Not safe for concurrent use.
type Cluster struct {
	Controller  *Server // and frontend, and metadata; the first of Controllers
	Controllers []*Server
	Stores      []*Server
	Inputs      []*Server
	Outputs     []*Server

	t      testing.TB
	gossip []string // addresses of all
}

// StartCluster runs a cluster until the test ends; it returns when every host is in the list of hosts.
func StartCluster(t testing.TB, l Layout) *Cluster {
	t.Helper()
	if l.Stores+l.Inputs+l.Outputs == 0 {
		l.Stores, l.Inputs, l.Outputs = 3, 2, 2
	}
	if l.Program == "" {
		l.Program = Program
	}
	c := &Cluster{t: t}
	kept := t.TempDir()
	var gossip []string
	add := func(name, roles string) *Server {
		net := Net{Host: "127.0.0.1"}
		if l.Place != nil {
			net = l.Place(len(gossip))
		}
		gossip = append(gossip, net.Host+":"+strconv.Itoa(FreePort(t)))
		s := &Server{
			Name: name, t: t, program: l.Program, prefix: net.Prefix, log: &Buffer{},
			Data: filepath.Join(kept, name), listen: net.Host + ":" + strconv.Itoa(FreePort(t)),
			flags: append([]string{"--roles", roles, "--gossip", gossip[len(gossip)-1]}, l.Flags...),
		}
		s.Addr = s.listen
		if l.Data != nil && l.Data(len(gossip)-1) != "" {
			s.Data = l.Data(len(gossip) - 1)
		}
		if l.FlagsOf != nil {
			s.flags = append(s.flags, l.FlagsOf(len(gossip)-1)...)
		}
		if l.Front != nil {
			s.Addr = l.Front(len(gossip)-1, s.listen)
			s.flags = append(s.flags, "--advertise", s.Addr)
		}
		s.end()
		return s
	}
	if l.Metadata != "" {
		l.Flags = append(slices.Clip(l.Flags), "--metadata", l.Metadata)
	}
	for i := range max(l.Controllers, 1) {
		c.Controllers = append(c.Controllers, add(numbered("controller", i, l.Controllers), "controller,frontend"))
	}
	c.Controller = c.Controllers[0]
	for i := range l.Stores {
		c.Stores = append(c.Stores, add(fmt.Sprintf("store%d", i+1), "storehost"))
	}
	for i := range l.Inputs {
		c.Inputs = append(c.Inputs, add(fmt.Sprintf("input%d", i+1), "inputhost"))
	}
	for i := range l.Outputs {
		c.Outputs = append(c.Outputs, add(fmt.Sprintf("output%d", i+1), "outputhost"))
	}
	c.gossip = gossip
	t.Cleanup(c.keepLogs)
	for i, s := range c.All() {
		// Everybody joins everybody: whoever starts again finds those that are there.
		others := slices.Concat(gossip[:i], gossip[i+1:])
		s.flags = append(s.flags, "--join", strings.Join(others, ","))
		s.Begin()
	}
	for _, s := range c.All() {
		s.Await()
	}
	c.AwaitHosts()
	return c
}

// Stranger begins a process on a data directory that joins the cluster by gossip, until the test ends. Await or Ended
// has to follow.
func (c *Cluster) Stranger(name, data string, flags ...string) *Server {
	c.t.Helper()
	s := &Server{
		Name: name, t: c.t, program: c.Controller.program, log: &Buffer{}, Data: data, listen: address(FreePort(c.t)),
		flags: append([]string{"--gossip", address(FreePort(c.t)), "--join", strings.Join(c.gossip, ",")}, flags...),
	}
	s.Addr = s.listen
	s.end()
	s.Begin()
	return s
}

// numbered is the name of process i of several, or of the only one.
func numbered(name string, i, of int) string {
	if of <= 1 {
		return name
	}
	return name + strconv.Itoa(i+1)
}

// All are the processes, the controllers first.
func (c *Cluster) All() []*Server {
	return slices.Concat(c.Controllers, c.Stores, c.Inputs, c.Outputs)
}

// Host is what `list hosts` says about a process.
type Host struct {
	Host  string
	Addr  string
	Roles []string
	State string
}

// Hosts are the hosts that the frontend knows.
func (c *Cluster) Hosts() []Host {
	c.t.Helper()
	return Decode[Host](c.t, c.Controller.Ask("list", "hosts", "-o", "json"))
}

// AwaitHosts waits until every process says that it is ready and the list of hosts has all of them up.
func (c *Cluster) AwaitHosts() {
	c.t.Helper()
	for _, s := range c.All() {
		Eventually(c.t, s.Name+" is ready", s.Ready)
	}
	var missing []string
	Eventually(c.t, "every process is in the list of hosts", func() bool {
		up := make(map[string]bool)
		for _, h := range c.Hosts() {
			up[h.Addr] = up[h.Addr] || h.State == "up" || strings.HasPrefix(h.State, "clock ") || strings.HasPrefix(h.State, "no majority") // an earlier host of the address may be down
		}
		missing = missing[:0]
		for _, s := range c.All() {
			if !up[s.Addr] {
				missing = append(missing, s.Name)
			}
		}
		return len(missing) == 0
	})
}

// KillAll kills servers at once, and answers within what time: from the first signal to the last. A process runs
// nothing more once it has its signal; that it gives back its memory takes longer.
func KillAll(servers ...*Server) (within time.Duration) {
	began := time.Now()
	for _, s := range servers {
		_ = s.cmd.Process.Kill()
	}
	within = time.Since(began)
	for _, s := range servers {
		s.Kill()
	}
	return within
}

// Ready asks the server's /readyz.
func (s *Server) Ready() bool {
	c := http.Client{Timeout: time.Second}
	defer c.CloseIdleConnections()
	r, err := c.Get("http://" + s.Addr + "/readyz")
	if err != nil {
		return false
	}
	defer r.Body.Close()
	return r.StatusCode == http.StatusOK
}

// keepLogs writes the whole logs of a failed test where they stay.
func (c *Cluster) keepLogs() {
	if !c.t.Failed() {
		return
	}
	dir, err := os.MkdirTemp("", "columba-logs-")
	if err != nil {
		c.t.Log(err)
		return
	}
	for _, s := range c.All() {
		if err := os.WriteFile(filepath.Join(dir, s.Name+".log"), []byte(s.Log()), 0o644); err != nil {
			c.t.Log(err)
		}
	}
	c.t.Logf("the logs of the cluster are in %s", dir)
}
