package cassandra

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/google/go-cmp/cmp"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

const applyTime = 3 * time.Minute

// fresh is a configuration with a keyspace that does not exist; it is dropped when the test ends.
func fresh(t *testing.T) (Config, cluster) {
	t.Helper()
	cfg := config(t)
	cfg.Keyspace = fmt.Sprintf("apply_%d", time.Now().UnixNano())
	cfg, err := cfg.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	c, err := cfg.connectEach(schemaTimeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer c.close()
		if err := c.session.Query("DROP KEYSPACE IF EXISTS " + cfg.Keyspace).Exec(); err != nil {
			t.Error(err)
		}
	})
	return cfg, c
}

// A keyspace without a schema is refused at once. The schema can be applied twice, and then it is accepted.
func TestApply(t *testing.T) {
	cfg, c := fresh(t)
	if _, err := Open(t.Context(), cfg); core.CodeOf(err) != core.CodeVersion {
		t.Fatalf("open without a schema: %v, want code %q", err, core.CodeVersion)
	}
	if _, err := Describe(t.Context(), cfg); core.CodeOf(err) != core.CodeNotFound {
		t.Errorf("describe without a keyspace: %v, want code %q", err, core.CodeNotFound)
	}
	ctx, cancel := context.WithTimeout(t.Context(), applyTime)
	defer cancel()
	replicas, err := cfg.placement(c.members(ctx, cfg.Request))
	if err != nil {
		t.Fatal(err)
	}
	want := Applied{Keyspace: cfg.Keyspace, Created: true, Replication: replicationOptions(replicas), To: 1}
	for range 2 {
		got, err := ApplySchema(ctx, cfg, func() {})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		want.Created, want.From = false, 1
	}
	if err := Check(ctx, cfg); err != nil {
		t.Error(err)
	}
	info, err := Describe(ctx, cfg)
	if err != nil || info.Version != 1 || info.Newest != 1 || info.Refused != nil || !info.Cluster.IsZero() || !maps.Equal(info.Replication, want.Replication) {
		t.Errorf("described as %+v, %v", info, err)
	}
	for _, n := range info.Nodes {
		if !n.Up || n.CommitLogSync != "batch" || n.Version == "" || n.DataCentre == "" || n.Rack == "" {
			t.Errorf("node %+v; all run, with batch", n)
		}
	}
	if got := c.slowTables(t, cfg.Keyspace); !slices.Equal(got, []string{"schema_seed"}) { // nothing reads that but a change of the schema
		t.Errorf("reads of %v wait for a lost replica", got)
	}
	if err := c.session.Query("INSERT INTO " + cfg.Keyspace + ".schema_step (owner, step) VALUES ('columba', 99)").Exec(); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"apply": Apply(ctx, cfg), "check": Check(ctx, cfg)} {
		if core.CodeOf(err) != core.CodeVersion {
			t.Errorf("%s of a newer schema: %v, want code %q", what, err, core.CodeVersion)
		}
	}
	if info, err := Describe(ctx, cfg); err != nil || info.Version != 99 || core.CodeOf(info.Refused) != core.CodeVersion {
		t.Errorf("a newer schema is described as %+v, %v", info, err)
	}
}

// Processes that apply the schema at the same time all succeed. No table is created twice: Cassandra would drop the
// first one, with its rows.
func TestApply_AtTheSameTime(t *testing.T) {
	cfg, c := fresh(t)
	ctx, cancel := context.WithTimeout(t.Context(), applyTime)
	defer cancel()
	nodes := c.members(ctx, cfg.Request)
	seen := map[string][]string{} // ids by table
	watching, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		for watching.Err() == nil {
			for _, n := range nodes {
				for table, id := range tableIDs(t, onNode(ctx, n.id), c, cfg.Keyspace) {
					if !slices.Contains(seen[table], id) {
						seen[table] = append(seen[table], id)
					}
				}
			}
		}
	})
	errs := make([]error, 6)
	var callers sync.WaitGroup
	for i := range errs {
		callers.Go(func() {
			cfg := cfg
			cfg.Local = nodes[i%len(nodes)].Address
			errs[i] = Apply(ctx, cfg)
		})
	}
	callers.Wait()
	stop()
	watch.Wait()
	for i, err := range errs {
		if err != nil {
			t.Errorf("caller %d: %v", i, err)
		}
	}
	if err := c.agree(ctx, cfg.Request); err != nil {
		t.Error(err)
	}
	if len(seen) < 8 {
		t.Errorf("the keyspace has the tables %v", seen)
	}
	for table, ids := range seen {
		if len(ids) != 1 {
			t.Errorf("table %s had the ids %v", table, ids)
		}
	}
	if err := Check(ctx, cfg); err != nil {
		t.Error(err)
	}
}

// slowTables are those whose reads ask no further replica until one has not answered for a while.
func (c cluster) slowTables(t *testing.T, keyspace string) (out []string) {
	iter := c.session.Query("SELECT table_name, speculative_retry FROM system_schema.tables WHERE keyspace_name = ?", keyspace).Iter()
	var table, retry string
	for iter.Scan(&table, &retry) {
		if retry != "ALWAYS" {
			out = append(out, table)
		}
	}
	if err := iter.Close(); err != nil {
		t.Fatal(err)
	}
	return out
}

// tableIDs are the ids of the tables of a keyspace, as the node of the context knows them.
func tableIDs(t *testing.T, ctx context.Context, c cluster, keyspace string) map[string]string {
	out := map[string]string{}
	iter := c.session.Query("SELECT table_name, id FROM system_schema.tables WHERE keyspace_name = ?", keyspace).WithContext(ctx).Iter()
	var table string
	var id gocql.UUID
	for iter.Scan(&table, &id) {
		out[table] = id.String()
	}
	if err := iter.Close(); err != nil && ctx.Err() == nil {
		t.Error(err)
	}
	return out
}

// An existing keyspace keeps its replication, whatever is asked for.
func TestApply_KeepsTheReplication(t *testing.T) {
	cfg, c := fresh(t)
	ctx, cancel := context.WithTimeout(t.Context(), applyTime)
	defer cancel()
	create := "CREATE KEYSPACE " + cfg.Keyspace + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
	if err := c.session.Query(create).Exec(); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"class": "SimpleStrategy", "replication_factor": "1"}
	for _, replicas := range []int{0, 1} {
		cfg.Replicas, cfg.Replication = replicas, nil
		got, err := ApplySchema(ctx, cfg, func() {})
		if err != nil || got.Created || !maps.Equal(got.Replication, want) || got.Differs != (replicas > 0) {
			t.Errorf("%d replicas: %+v, %v", replicas, got, err)
		}
	}
}

// Servers that use the keyspace give it the id of their cluster.
func TestDescribe_Cluster(t *testing.T) {
	s := open(t)
	defer s.Close()
	s.prefix = "" // the id is that of all tests of this binary
	want, err := metadata.ClusterID(t.Context(), s, core.ID{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	info, err := Describe(t.Context(), config(t))
	if err != nil || info.Cluster != want {
		t.Errorf("cluster %s, %v; want %s", info.Cluster, err, want)
	}
}

func TestPlacement(t *testing.T) {
	one := []NodeInfo{{Address: "a", DataCentre: "x"}}
	three := []NodeInfo{{Address: "a", DataCentre: "x"}, {Address: "b", DataCentre: "x"}, {Address: "c", DataCentre: "x"}}
	two := append([]NodeInfo{{Address: "d", DataCentre: "y"}}, three...)
	local := append([]NodeInfo{{Address: "e", DataCentre: "x", local: true}}, two...)
	for _, test := range []struct {
		name  string
		nodes []NodeInfo
		cfg   Config
		want  map[string]int // nil: refused
		says  string
		later bool // refused as CodeUnavailable, else as CodeBadArgument
	}{
		{name: "one node", nodes: one, want: map[string]int{"x": 1}},
		{name: "two nodes", nodes: three[:2], want: map[string]int{"x": 1}},
		{name: "three nodes", nodes: three, want: map[string]int{"x": 3}},
		{
			name: "two nodes of three that the URL names", nodes: three[:2], cfg: Config{Hosts: []string{"a:1", "b:1", "c:1"}},
			says: "know 2 nodes of their cluster, and the URL names 3", later: true,
		},
		{name: "a node that the URL names twice", nodes: one, cfg: Config{Hosts: []string{"a:1", "a:1"}}, want: map[string]int{"x": 1}},
		{name: "more names than replicas", nodes: three, cfg: Config{Hosts: []string{"a:1", "b:1", "c:1", "d:1"}}, want: map[string]int{"x": 3}},
		{name: "a number that two nodes of three can have", nodes: three[:2], cfg: Config{Hosts: []string{"a:1", "b:1", "c:1"}, Replicas: 1}, want: map[string]int{"x": 1}},
		{name: "a number", nodes: three, cfg: Config{Replicas: 2}, want: map[string]int{"x": 2}},
		{name: "two data centres", nodes: two, says: "x=3,y=3"},
		{name: "two data centres and a local one", nodes: local, want: map[string]int{"x": 3}},
		{name: "each data centre", nodes: two, cfg: Config{Replication: map[string]int{"x": 3, "y": 1}}, want: map[string]int{"x": 3, "y": 1}},
		{name: "no such data centre", nodes: two, cfg: Config{Replication: map[string]int{"z": 1}}, says: "it has x, y"},
		{name: "too few nodes", nodes: one, cfg: Config{Replicas: 3}, says: "1 node, too few for 3 replicas"},
		{name: "none", nodes: one, cfg: Config{Replication: map[string]int{"x": 0}}, says: "not possible"},
		{name: "less than none", nodes: one, cfg: Config{Replicas: -1}, says: "not possible"},
	} {
		got, err := test.cfg.placement(test.nodes)
		refusal := core.CodeBadArgument
		if test.later {
			refusal = core.CodeUnavailable
		}
		switch {
		case test.want != nil && (err != nil || !maps.Equal(got, test.want)):
			t.Errorf("%s: got %v, %v; want %v", test.name, got, err, test.want)
		case test.want == nil && (core.CodeOf(err) != refusal || !strings.Contains(err.Error(), test.says)):
			t.Errorf("%s: got %v, %v; want %q", test.name, got, err, test.says)
		}
	}
}

func TestCQLMap(t *testing.T) {
	got := cqlMap(replicationOptions(map[string]int{"it's": 3, "b": 1}))
	if want := "{'b': '1', 'class': 'NetworkTopologyStrategy', 'it''s': '3'}"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Requests go to the local node if it is up, else to another one, and never to one that is not.
func TestThrough(t *testing.T) {
	up, local, down := NodeInfo{Up: true, id: "up"}, NodeInfo{Up: true, local: true, id: "local"}, NodeInfo{local: true, id: "down"}
	for want, nodes := range map[string][]NodeInfo{"up": {down, up}, "local": {up, local, up}} {
		ctx, err := through(t.Context(), nodes)
		if err != nil || ctx.Value(nodeKey{}) != want {
			t.Errorf("of %+v: %v, %v", nodes, ctx, err)
		}
	}
	if _, err := through(t.Context(), []NodeInfo{down}); core.CodeOf(err) != core.CodeUnavailable {
		t.Errorf("no node is up: %v", err)
	}
}

// Ids differ by keyspace, table and seed, and nothing else.
func TestTableID(t *testing.T) {
	seen := map[string]string{}
	for _, seed := range [][]byte{nil, {1}, {2}} {
		for _, table := range []string{"k.a", "k.b", "l.a"} {
			id, what := tableID(seed, table), fmt.Sprint(seed, table)
			if other := seen[id]; other != "" || id != tableID(slices.Clone(seed), table) {
				t.Errorf("%s has the id %s, which %q has", what, id, other)
			}
			seen[id] = what
			if _, err := core.ParseID(id); err != nil {
				t.Error(err)
			}
		}
	}
}

// A change of the schema needs all nodes, with one schema.
func TestAgreed(t *testing.T) {
	up := NodeInfo{Address: "a", Up: true, Schema: "1"}
	for _, test := range []struct {
		nodes  []NodeInfo
		agreed bool
		down   string
	}{
		{[]NodeInfo{up}, true, ""},
		{[]NodeInfo{up, {Address: "b", Up: true, Schema: "1"}}, true, ""},
		{[]NodeInfo{up, {Address: "b", Up: true, Schema: "2"}}, false, ""},
		{[]NodeInfo{up, {Address: "b"}}, false, "node b does"},
		{[]NodeInfo{{Address: "c"}, up, {Address: "b"}}, false, "nodes c, b do"},
	} {
		if got := agreed(test.nodes); got != test.agreed {
			t.Errorf("%+v: agreed is %v", test.nodes, got)
		}
		err := allUp(test.nodes)
		if (err == nil) != (test.down == "") || err != nil && !strings.Contains(err.Error(), test.down) {
			t.Errorf("%+v: %v, want %q", test.nodes, err, test.down)
		}
	}
}
