// Package cluster owns clusters for tests: every role on a host of its own, in one process, on an in-memory network,
// over shared metadata and disks in memory. Made inside a testing/synctest bubble, hours pass in milliseconds.
package cluster

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/controller"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/inputhost"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/faulty"
	"github.com/columbamq/columba/metadata/memory"
	"github.com/columbamq/columba/outputhost"
	"github.com/columbamq/columba/storehost/extentlog/memdisk"
)

// Names of the hosts of a cluster with one of each role; there may be several stores, inputs and outputs.
const (
	Controller core.HostID = "controller-0"
	Output     core.HostID = "output-0"
	Input      core.HostID = "input-0"
	Frontend   core.HostID = "frontend-0"
)

// Store, ControllerOf, InputOf, OutputOf and FrontendOf are the ids of hosts of which there may be several.
func Store(i int) core.HostID        { return nth("store", i) }
func ControllerOf(i int) core.HostID { return nth("controller", i) }
func InputOf(i int) core.HostID      { return nth("input", i) }
func OutputOf(i int) core.HostID     { return nth("output", i) }
func FrontendOf(i int) core.HostID   { return nth("frontend", i) }

func nth(role string, i int) core.HostID { return core.HostID(role + "-" + strconv.Itoa(i)) }

// Options of a cluster. Zero fields take the roles' defaults.
type Options struct {
	Stores      int // 1
	Controllers int // 1
	Inputs      int // 1
	Outputs     int // 1
	Frontends   int // 1
	Replicas    int // of queues; as many as there are stores

	Controller func(*controller.Config)
	Input      func(*inputhost.Config)
	Output     func(*outputhost.Config)
	Meta       func(metadata.Store) metadata.Store              // stands before the metadata, for faults
	MetaOf     func(core.HostID, metadata.Store) metadata.Store // stands before that, for each run of a host
	Divergence *faulty.Divergence                               // of the replicas of the metadata; nil: each read sees each write
	Logs       func(string)                                     // takes what the hosts said when the test has failed; nil: the test's log does
	Gossip     func() time.Duration                             // how long one host takes to hear of another's coming or going; nil: no time
}

// Cluster is a running cluster. Its methods are for one goroutine.
type Cluster struct {
	Client *client.Client
	Meta   metadata.Store // as it is, without faults; of replicas that differ the newest rows

	t      testing.TB
	o      Options
	net    *network
	behind metadata.Store   // what hosts use
	copies *faulty.Replicas // behind it, if it has several
	roster *roster
	hosts  map[core.HostID]*host
	order  []core.HostID
	acting acting
	log    *logs
	closed chan struct{}
	wg     sync.WaitGroup // of what is done later, and of processes that die
}

// Start starts a cluster; Close stops it.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	o.Stores, o.Controllers, o.Inputs, o.Outputs, o.Frontends = max(o.Stores, 1), max(o.Controllers, 1), max(o.Inputs, 1), max(o.Outputs, 1), max(o.Frontends, 1)
	if o.Replicas == 0 {
		o.Replicas = o.Stores
	}
	c := &Cluster{
		Meta: memory.New(), t: t, o: o, net: newNetwork(), roster: newRoster(), hosts: make(map[core.HostID]*host), log: &logs{}, closed: make(chan struct{}),
	}
	c.behind = c.Meta
	if o.Divergence != nil {
		r := faulty.NewReplicas(*o.Divergence)
		c.Meta, c.behind, c.copies = r.Whole(), r, r
	}
	if o.Meta != nil {
		c.behind = o.Meta(c.behind)
	}
	for i := range o.Stores {
		c.add(Store(i), "storehost")
	}
	for i := range o.Controllers {
		c.add(ControllerOf(i), "controller")
	}
	for i := range o.Outputs {
		c.add(OutputOf(i), "outputhost")
	}
	for i := range o.Inputs {
		c.add(InputOf(i), "inputhost")
	}
	for i := range o.Frontends {
		c.add(FrontendOf(i), "frontend")
	}
	for _, id := range c.order {
		c.roster.announce(c.hosts[id].member())
	}
	for _, id := range c.order {
		if err := c.hosts[id].start(); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if c.Client, err = c.dial(c.net.attach("client")); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *Cluster) add(id core.HostID, role string) {
	h := &host{c: c, id: id, kind: role, addr: string(id) + ":1", run: newRun()}
	if role == "storehost" {
		h.disk = memdisk.New()
	}
	c.hosts[id] = h
	c.order = append(c.order, id)
}

// dial makes a client that reaches the cluster from a port.
func (c *Cluster) dial(from *port) (*client.Client, error) { return c.dialBy(from, Frontend) }

// dialBy is dial by one of several frontends.
func (c *Cluster) dialBy(from *port, by core.HostID) (*client.Client, error) {
	return client.Dial(c.t.Context(), c.hosts[by].addr, client.WithName("test"), client.WithNetDial(from.dial))
}

// Close stops everything, gracefully. A bubble must not end without it.
func (c *Cluster) Close() {
	c.t.Helper()
	if err := c.Client.Close(); err != nil {
		c.t.Errorf("close the client: %v", err)
	}
	for i := len(c.order) - 1; i >= 0; i-- {
		if h := c.hosts[c.order[i]]; h.process != nil {
			h.stop()
		}
	}
	close(c.closed)
	c.wg.Wait()
	time.Sleep(c.net.delays(0, nil)) // so long may reads of connections that are gone still wait
	c.behind.Close()
	if c.t.Failed() && c.o.Logs != nil {
		c.o.Logs(c.log.text())
	} else if c.t.Failed() {
		c.t.Logf("logs of the hosts:\n%s", c.log.text())
	}
}

// Restart stops hosts gracefully and starts them again as new runs.
func (c *Cluster) Restart(ids ...core.HostID) {
	c.t.Helper()
	c.eachDown(ids, (*host).stop)
	c.Up(ids...)
}

// Crash kills hosts: connections break and nothing more is saved; what the disk was given stays.
func (c *Cluster) Crash(ids ...core.HostID) {
	c.t.Helper()
	c.eachDown(ids, func(h *host) { h.crash((*memdisk.Disk).Crash) })
}

// All are the ids of all hosts.
func (c *Cluster) All() []core.HostID { return c.order }

func (c *Cluster) eachDown(ids []core.HostID, down func(*host)) {
	for i := len(ids) - 1; i >= 0; i-- {
		down(c.hosts[ids[i]])
	}
}

// Up starts hosts that are down, as new runs, in the order of starting a cluster.
func (c *Cluster) Up(ids ...core.HostID) {
	c.t.Helper()
	for _, id := range ids {
		c.hosts[id].run = newRun()
		c.roster.announce(c.hosts[id].member())
		c.tell(id)
	}
	for _, id := range c.order {
		if h := c.hosts[id]; slices.Contains(ids, id) && h.process == nil {
			if err := h.start(); err != nil {
				c.t.Fatal(err)
			}
		}
	}
}

// Cut breaks the connections between two hosts; they may be made again.
func (c *Cluster) Cut(a, b core.HostID) {
	x, y := c.hosts[a].addr, c.hosts[b].addr
	c.net.reset(func(a, b string) bool { return a == x && b == y })
}

// CutClients breaks the connections of clients to a host.
func (c *Cluster) CutClients(id core.HostID) {
	c.net.reset(func(a, b string) bool { return a == "client" && b == c.hosts[id].addr })
}

// Hold stops all traffic from and to a host until release.
func (c *Cluster) Hold(id core.HostID) (release func()) { return c.net.hold(c.hosts[id].addr) }

// OnMeta makes f decide about each call of a host to the metadata; nil lets all pass. A restart takes it away.
func (c *Cluster) OnMeta(id core.HostID, f func(ctx context.Context, op Op) error) {
	c.hosts[id].meta.set(f)
}

// tell lets all hosts know that one has come or gone.
func (c *Cluster) tell(id core.HostID) {
	for _, observer := range c.roster.observers() {
		learn := func() {
			if err := c.roster.learn(observer, id); err != nil {
				c.t.Error(err)
			}
		}
		if c.o.Gossip == nil {
			learn()
		} else {
			c.later(c.o.Gossip(), learn)
		}
	}
}

func newRun() core.RunID { return core.RunID{ID: core.NewID(time.Now())} }

// logs keeps the last of what the hosts say, for failed tests.
type logs struct {
	mu struct {
		sync.Mutex
		buf bytes.Buffer
	}
}

const maxLogs = 4 << 20

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.buf.Len() > maxLogs {
		l.mu.buf.Next(maxLogs / 2)
	}
	return l.mu.buf.Write(b)
}

func (l *logs) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.buf.String()
}
