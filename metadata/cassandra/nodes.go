package cassandra

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/sync/errgroup"

	"github.com/columbamq/columba/core"
)

// NodeInfo is one node of a Cassandra cluster.
type NodeInfo struct {
	Address    string // of clients, "host:port"
	DataCentre string
	Rack       string
	// Up: the node answered. The fields below are empty unless it did.
	Up            bool
	Version       string // of Cassandra
	Schema        string // the node's version of the schema of all keyspaces
	CommitLogSync string // batch, group or periodic; empty also if the node does not say

	id    string
	local bool // the node that is asked first, see Config.Local
}

// cluster is a connection to all nodes of a Cassandra cluster. Unlike a Store it can ask each of them.
type cluster struct {
	session *gocql.Session
	nodes   *byNode
}

// connectEach connects to all nodes that answer; it fails when none does. request limits the time of one request.
func (c Config) connectEach(request time.Duration) (cluster, error) {
	nodes := &byNode{localFirst: newLocalFirst(c.Local), known: map[string]*gocql.HostInfo{}}
	session, err := c.connectBy(nodes, request)
	return cluster{session, nodes}, err
}

func (c cluster) close() { c.session.Close() }

// members returns all nodes of the cluster, in the order of their addresses. It asks each of them, for as long as
// limit.
func (c cluster) members(ctx context.Context, limit time.Duration) []NodeInfo {
	all := c.nodes.all()
	var ask errgroup.Group
	ask.SetLimit(atOnce)
	for i := range all {
		ask.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			all[i].ask(ctx, c.session)
			return nil
		})
	}
	ask.Wait()
	return all
}

// through makes the requests of a context go to one node that is up, the local one if there is one: a request to a node
// that hangs would wait for long. CodeUnavailable when none is up.
func through(ctx context.Context, all []NodeInfo) (context.Context, error) {
	id := ""
	for _, n := range all {
		if n.Up && (id == "" || n.local) {
			id = n.id
		}
	}
	if id == "" {
		return nil, core.Errorf(core.CodeUnavailable, "no node of Cassandra answers in time; see `nodetool status`")
	}
	return onNode(ctx, id), nil
}

// ask has the node tell about itself. A node that does not answer is not up.
func (n *NodeInfo) ask(ctx context.Context, session *gocql.Session) {
	ctx = onNode(ctx, n.id)
	var schema gocql.UUID
	err := session.Query("SELECT release_version, schema_version FROM system.local WHERE key = 'local'").WithContext(ctx).
		Consistency(gocql.One).Scan(&n.Version, &schema)
	if err != nil {
		return
	}
	n.Up, n.Schema = true, schema.String()
	n.CommitLogSync, _ = commitLogSync(ctx, session) // old versions, and users without permission, have no answer
}

// agree waits until all nodes have the same schema; each answer is waited for as long as limit. Errors:
// CodeUnavailable, CodeDeadline when ctx ends.
func (c cluster) agree(ctx context.Context, limit time.Duration) error {
	waiting, cancel := context.WithTimeout(ctx, schemaTimeout)
	defer cancel()
	var pace pacer
	for {
		all := c.members(waiting, limit)
		if agreed(all) {
			return nil
		}
		if pace.wait(waiting) == nil {
			continue
		}
		if err := context.Cause(ctx); err != nil {
			return schemaError("wait until the nodes agree on the schema", err)
		}
		if err := allUp(all); err != nil {
			return err
		}
		return core.Errorf(core.CodeUnavailable, "the nodes did not agree on the schema within %s; apply the schema again", schemaTimeout)
	}
}

// agreed reports whether all nodes are up and have the same schema.
func agreed(all []NodeInfo) bool {
	return !slices.ContainsFunc(all, func(n NodeInfo) bool { return !n.Up || n.Schema != all[0].Schema })
}

// allUp names the nodes that do not answer: CodeUnavailable. A node that misses a change of the schema gets it later,
// but until then it cannot store what the others can.
func allUp(all []NodeInfo) error {
	var down []string
	for _, n := range all {
		if !n.Up {
			down = append(down, n.Address)
		}
	}
	switch len(down) {
	case 0:
		return nil
	case 1:
		return core.Errorf(core.CodeUnavailable, "Cassandra node %s does not answer, and a change of the schema needs all nodes; start it, or remove it from its cluster", down[0])
	}
	return core.Errorf(core.CodeUnavailable, "Cassandra nodes %s do not answer, and a change of the schema needs all nodes; start them, or remove them from their cluster", strings.Join(down, ", "))
}

// byNode sends a request to the node that its context names, and to no other; requests that name none go where the
// policy below says.
type byNode struct {
	localFirst

	mu    sync.Mutex
	known map[string]*gocql.HostInfo // by id
}

type nodeKey struct{}

// onNode makes the requests of a context go to one node.
func onNode(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, nodeKey{}, id)
}

// Pick implements gocql.HostSelectionPolicy.
func (p *byNode) Pick(q gocql.ExecutableQuery) gocql.NextHost {
	next := p.localFirst.Pick(q)
	id, _ := q.Context().Value(nodeKey{}).(string)
	if id == "" {
		return next
	}
	return func() gocql.SelectedHost {
		for h := next(); h != nil; h = next() {
			if info := h.Info(); info != nil && info.HostID() == id {
				return h
			}
		}
		return nil
	}
}

// AddHost implements gocql.HostSelectionPolicy.
func (p *byNode) AddHost(host *gocql.HostInfo) {
	p.localFirst.AddHost(host)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known[host.HostID()] = host
}

// RemoveHost implements gocql.HostSelectionPolicy.
func (p *byNode) RemoveHost(host *gocql.HostInfo) {
	p.localFirst.RemoveHost(host)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.known, host.HostID())
}

// all returns the nodes of the cluster, up or not.
func (p *byNode) all() []NodeInfo {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []NodeInfo
	for id, host := range p.known {
		out = append(out, NodeInfo{
			Address: host.ConnectAddressAndPort(), DataCentre: host.DataCenter(), Rack: host.Rack(), id: id, local: p.is(host),
		})
	}
	slices.SortFunc(out, func(a, b NodeInfo) int { return strings.Compare(a.Address, b.Address) })
	return out
}
