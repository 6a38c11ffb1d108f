package faults

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	meta "github.com/columbamq/columba/metadata/cassandra"
	"github.com/columbamq/columba/test/cassandra"
	"github.com/columbamq/columba/test/process"
)

// nodes are the Cassandra nodes of this package's tests.
var nodes cassandra.Nodes

// onCassandra is the URL of a keyspace of one test, with the schema.
func onCassandra(t *testing.T, name string) string {
	t.Helper()
	var addrs []string
	for _, n := range nodes.Start(t) {
		addrs = append(addrs, n.Address())
	}
	return applied(t, addrs, strings.ToLower(t.Name())+"_"+name)
}

// applied is the URL of a new keyspace on those nodes.
func applied(t *testing.T, addrs []string, keyspace string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := meta.Apply(ctx, meta.Config{Hosts: addrs, Keyspace: keyspace}); err != nil {
		t.Fatal(err)
	}
	return meta.Scheme + strings.Join(addrs, ",") + "/" + keyspace
}

// anywhere is a cluster as its clients see it who know all controllers.
func anywhere(t *testing.T, c *process.Cluster) *process.Server {
	var addrs []string
	for _, s := range c.Controllers {
		addrs = append(addrs, s.Addr)
	}
	return process.At(t, strings.Join(addrs, ","))
}

// TestControllersAreKilled kills one controller after another, every five seconds, and starts it again, under load.
// Nothing is lost, and no publisher hears of it.
func TestControllersAreKilled(t *testing.T) {
	long(t)
	c := process.StartCluster(t, process.Layout{Controllers: 3, Stores: 3, Inputs: 2, Outputs: 2, Metadata: onCassandra(t, "all")})
	l := newLoad(t, anywhere(t, c), 500)
	l.start(2, 2)
	l.goesOn(1000)
	for i := range scaled(t, 24) {
		s := c.Controllers[i%len(c.Controllers)]
		from := time.Now()
		s.Kill()
		s.Start()
		l.down(s.Name, from)
		<-time.After(time.Until(from.Add(5 * time.Second)))
		l.goesOn(100)
	}
	c.AwaitHosts()
	l.goesOn(1000)
	l.finish()
	if n := len(l.refusals); n > 0 {
		t.Errorf("publishers were told of errors: %v", l.refusals)
	}
	l.row("one of three controllers killed every 5 s, metadata in Cassandra", fmt.Sprintf("%d acknowledged", l.acknowledged()))
}
