package node

import (
	"math"
	"slices"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/columbamq/columba/core"
)

// descriptors is how many of the files that a process may have open each of its parts takes, at most.
type descriptors struct {
	limit       uint64 // of the process
	connections int    // that others open to its servers
	gossip      int    // streams that others open to each of its members of gossip
	tables      int    // that each database keeps open: of each store, and of the metadata
}

const (
	ownFiles      = 24  // of a process: its listeners, and connections to other hosts
	databaseFiles = 12  // of a database, beside its tables: logs, directories, the table that it writes
	fewestTables  = 8   // with which a database works
	mostTables    = 490 // that a database keeps open
	fewestStreams = 4   // of gossip, to each member, with which a cluster forms
	mostStreams   = 32  // of gossip, to each member
)

// share divides the limit of open files of a process that has so many databases and members of gossip. An operating
// system that names no limit has none.
func share(limit uint64, databases, members int) (descriptors, error) {
	limit = min(limit, math.MaxInt32)
	half := int(limit / 2)
	d := descriptors{limit: limit}
	if members > 0 {
		d.gossip = min(mostStreams, max(fewestStreams, half/16/members))
	}
	d.connections = max(0, min(maxConnections, half-members*d.gossip))
	if databases == 0 {
		return d, nil
	}
	open := min(half, d.connections+members*d.gossip)
	d.tables = min(mostTables, (int(limit)-open-ownFiles)/databases-databaseFiles)
	if d.tables < fewestTables {
		return d, core.Errorf(core.CodeUnavailable, "the process may have %d files open, and needs %d; raise the limit (ulimit -n, or LimitNOFILE of systemd) to %d or more",
			limit, limitFor(databases, fewestTables), limitFor(databases, mostTables))
	}
	return d, nil
}

// limitFor is the limit of open files with which each database can keep so many tables open. Half of it is for
// connections and streams of gossip.
func limitFor(databases, tables int) int { return 2 * (ownFiles + databases*(databaseFiles+tables)) }

// low reports whether databases have to close tables that they use.
func (d descriptors) low() bool { return d.tables != 0 && d.tables < mostTables }

// openFiles is the limit of this process.
func openFiles() uint64 {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return math.MaxInt32
	}
	return l.Cur
}

// divideFiles divides the limit of this process among its parts, and says so when it is low.
func (n *Node) divideFiles(reg prometheus.Registerer) (descriptors, error) {
	databases := 0
	if slices.Contains(n.cfg.Roles, RoleStore) {
		databases = max(1, n.cfg.Stores)
	}
	if n.cfg.holdsMetadata() {
		databases++
	}
	d, err := share(openFiles(), databases, n.cfg.gossipMembers())
	if err == nil && d.low() {
		n.o.Log.Warn("the limit of open files is low: files of the disk are closed and opened again and again, which is slow, and fewer connections are accepted; raise it (ulimit -n, or LimitNOFILE of systemd)",
			"limit", d.limit, "enough", limitFor(databases, mostTables), "connections", d.connections, "tables", d.tables)
	}
	gauge := func(name, help string, value int) {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "columba_server_" + name, Help: help})
		g.Set(float64(value))
		reg.MustRegister(g)
	}
	gauge("connections_limit", "How many connections may be open to the servers of the process.", d.connections)
	gauge("tables_limit", "How many tables each database of the process keeps open.", d.tables)
	return d, err
}
