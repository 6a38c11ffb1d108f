package cassandra

import (
	"fmt"
	"io"
	"log"
	"strconv"
	"time"

	"github.com/gocql/gocql"
)

const ringTime = time.Minute // 1 to 5 s on a machine that does nothing else

// together waits until the nodes that run know all nodes, with their tokens, and agree on the schema: a node that
// answers clients may not know the others yet, and then takes itself for the only replica.
func (n *Nodes) together() error {
	if len(n.all) == 1 {
		return nil
	}
	late := time.After(ringTime)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := n.apart()
		if err == nil {
			return nil
		}
		select {
		case <-late:
			return fmt.Errorf("after %s %w", ringTime, err)
		case <-tick.C:
		}
	}
}

// apart returns what is missing until the nodes are a cluster, nil if nothing is.
func (n *Nodes) apart() error {
	schemas := map[string]string{} // by node
	for _, node := range n.all {
		if !node.runs() {
			continue
		}
		peers, schema, err := node.peers()
		if err != nil {
			return fmt.Errorf("%s does not answer: %w", node.name, err)
		}
		if peers != len(n.all)-1 {
			return fmt.Errorf("%s knows %d of the %d others", node.name, peers, len(n.all)-1)
		}
		schemas[schema] = node.name
	}
	if len(schemas) > 1 {
		return fmt.Errorf("the nodes have different schemas: %v", schemas)
	}
	return nil
}

// peers asks the node, and only this one, how many others it knows with their tokens, and which schema it has.
func (n *Node) peers() (known int, schema string, err error) {
	cluster := gocql.NewCluster(n.ip)
	if cluster.Port, err = strconv.Atoi(n.port); err != nil {
		return 0, "", err
	}
	cluster.ConnectTimeout, cluster.Timeout = 10*time.Second, 10*time.Second
	cluster.NumConns = 1
	cluster.DisableInitialHostLookup = true
	cluster.HostFilter = gocql.WhiteListHostFilter(n.ip)
	cluster.Events.DisableTopologyEvents, cluster.Events.DisableNodeStatusEvents = true, true
	cluster.Logger = log.New(io.Discard, "", 0)
	session, err := cluster.CreateSession()
	if err != nil {
		return 0, "", err
	}
	defer session.Close()
	var tokens []string
	peers := session.Query("SELECT tokens FROM system.peers").Consistency(gocql.One).Iter()
	for peers.Scan(&tokens) {
		if len(tokens) > 0 {
			known++
		}
	}
	if err := peers.Close(); err != nil {
		return 0, "", err
	}
	var id gocql.UUID
	err = session.Query("SELECT schema_version FROM system.local").Consistency(gocql.One).Scan(&id)
	return known, id.String(), err
}
