package cassandra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gocql/gocql"

	"github.com/columbamq/columba/core"
)

const defaultReplicas = 3

// errUnknownNodes: a node that has just started does not know all others yet.
var errUnknownNodes = errors.New("wait until `nodetool status` lists all nodes on each of them, and apply the schema again, or choose the number with --replicas")

// placement decides how many replicas a new keyspace has in each data centre. Errors: CodeBadArgument;
// errUnknownNodes, CodeUnavailable.
func (c Config) placement(nodes []NodeInfo) (map[string]int, error) {
	size := map[string]int{} // of data centres
	local := ""
	for _, n := range nodes {
		size[n.DataCentre]++
		if n.local {
			local = n.DataCentre
		}
	}
	asked := c.Replication
	if len(asked) == 0 {
		centres := slices.Sorted(maps.Keys(size))
		if local == "" && len(centres) != 1 {
			return nil, core.Errorf(core.CodeBadArgument, "the cluster has the data centres %s; say how many replicas each of them gets, like %s=3",
				strings.Join(centres, ", "), strings.Join(centres, "=3,"))
		}
		if local == "" {
			local = centres[0]
		}
		n := c.Replicas
		if n == 0 {
			// The keyspace would have one replica for ever, although the operator has named enough nodes for three.
			if named := c.named(); len(nodes) < min(named, defaultReplicas) {
				return nil, core.Errorf(core.CodeUnavailable, "the nodes that answer know %s of their cluster, and the URL names %d, so the number of replicas is not certain; %w",
					count(len(nodes), "node"), named, errUnknownNodes)
			}
			n = 1
			if size[local] >= defaultReplicas {
				n = defaultReplicas
			}
		}
		asked = map[string]int{local: n}
	}
	for centre, replicas := range asked {
		switch {
		case replicas < 1:
			return nil, core.Errorf(core.CodeBadArgument, "%d replicas in data centre %s are not possible; use 3", replicas, centre)
		case size[centre] == 0:
			return nil, core.Errorf(core.CodeBadArgument, "the cluster has no data centre %q; it has %s", centre, strings.Join(slices.Sorted(maps.Keys(size)), ", "))
		case size[centre] < replicas:
			return nil, core.Errorf(core.CodeBadArgument, "data centre %s has %s, too few for %d replicas; start more nodes first, or use fewer replicas", centre, count(size[centre], "node"), replicas)
		}
	}
	return asked, nil
}

// named is how many nodes the configuration names.
func (c Config) named() int {
	hosts := slices.Clone(c.Hosts)
	slices.Sort(hosts)
	return len(slices.Compact(hosts))
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// replicationOptions are the options of a keyspace with these replicas: Cassandra places those of one data centre in as
// many racks as it has.
func replicationOptions(replicas map[string]int) map[string]string {
	out := map[string]string{"class": "NetworkTopologyStrategy"}
	for centre, n := range replicas {
		out[centre] = strconv.Itoa(n)
	}
	return out
}

// cqlMap writes a map of strings as CQL.
func cqlMap(m map[string]string) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		all = append(all, fmt.Sprintf("'%s': '%s'", strings.ReplaceAll(key, "'", "''"), strings.ReplaceAll(m[key], "'", "''")))
	}
	return "{" + strings.Join(all, ", ") + "}"
}

// keyspaceReplication returns the replication options of a keyspace, nil if there is no such keyspace.
func keyspaceReplication(ctx context.Context, session *gocql.Session, keyspace string) (map[string]string, error) {
	var options map[string]string
	err := session.Query("SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?", keyspace).WithContext(ctx).
		Consistency(gocql.One).Scan(&options)
	if errors.Is(err, gocql.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, schemaError("read the replication of keyspace "+keyspace, err)
	}
	options["class"] = options["class"][strings.LastIndex(options["class"], ".")+1:]
	return options, nil
}
