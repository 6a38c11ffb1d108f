package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata/cassandra"
)

const (
	applyTimeout = 2 * time.Minute // of `schema apply`, unless --timeout is given
	maxReplicas  = 99              // of one data centre; a larger number is a slip of the hand
)

// schemas creates and describes the schema of metadata in Cassandra; tests have one without Cassandra.
type schemas struct {
	apply    func(ctx context.Context, cfg cassandra.Config, changed func()) (cassandra.Applied, error)
	describe func(ctx context.Context, cfg cassandra.Config) (cassandra.SchemaInfo, error)
}

var inCassandra = schemas{cassandra.ApplySchema, cassandra.Describe}

const cassandraURL = "URL is cassandra://[USER@]HOST[:PORT][,HOST[:PORT]…][/KEYSPACE][?OPTION=VALUE&…], as for --metadata of `columba serve`. The keyspace is\n" +
	"columba unless it is given. The options are local=HOST:PORT, password-file=FILE, tls=system and tls=FILE."

func (a *app) schemaCommand() *cobra.Command {
	return parent("schema", "Create, update or show the tables of metadata in Cassandra", a.schemaApplyCommand(), a.schemaShowCommand())
}

func (a *app) schemaApplyCommand() *cobra.Command {
	var replicas string
	cmd := &cobra.Command{
		Use: "apply URL", Short: "Create the keyspace, and bring its tables to the newest schema",
		Long: "Create the keyspace in Cassandra, unless it exists, and bring its tables to the newest schema that this binary knows. It can be run again\n" +
			"at any time, also by several operators at once. All nodes of the cluster must be up, unless nothing is to be done.\n\n" +
			"An existing keyspace keeps its replication. A schema that is newer than this binary is refused.\n\n" +
			cassandraURL + "\n\n" +
			"--timeout limits the whole command; without it the limit is 2m.",
		Example: "  columba schema apply cassandra://10.0.0.1,10.0.0.2,10.0.0.3/columba\n" +
			"  columba schema apply cassandra://10.0.0.1,10.0.0.2/columba --replicas 3\n" +
			"  columba schema apply cassandra://10.0.0.1,10.0.0.2/columba --replicas east=3,west=3\n" +
			"  columba schema apply 'cassandra://columba@10.0.0.1/columba?password-file=/etc/columba/cassandra&tls=system'",
		Args: exactly(1),
	}
	cmd.Flags().StringVar(&replicas, "replicas", "", "replicas of each row in a new keyspace: `N`, or N for each data centre like DC=N,DC=N. Default: 3, or 1 if the cluster has fewer than 3 nodes")
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		cfg, err := cassandra.ParseURL(args[0])
		if err != nil {
			return err
		}
		if cmd.Flags().Changed("replicas") {
			if cfg.Replicas, cfg.Replication, err = parseReplicas(replicas); err != nil {
				return err
			}
		}
		limit := applyTimeout
		if cmd.Flags().Changed("timeout") {
			limit = a.timeout
		}
		return a.applySchema(ctx, cfg, limit)
	})
	return cmd
}

// parseReplicas reads a number of replicas, or one for each data centre.
func parseReplicas(text string) (all int, each map[string]int, err error) {
	if n, err := strconv.Atoi(text); err == nil {
		return n, nil, checkReplicas(n)
	}
	each = map[string]int{}
	for part := range strings.SplitSeq(text, ",") {
		centre, number, ok := strings.Cut(part, "=")
		n, err := strconv.Atoi(number)
		if !ok || centre == "" || err != nil {
			return 0, nil, core.Errorf(core.CodeBadArgument, "--replicas %q is neither a number nor like east=3,west=3", clip(text))
		}
		if _, twice := each[centre]; twice {
			return 0, nil, core.Errorf(core.CodeBadArgument, "--replicas names data centre %s twice", centre)
		}
		if err := checkReplicas(n); err != nil {
			return 0, nil, err
		}
		each[centre] = n
	}
	return 0, each, nil
}

func checkReplicas(n int) error {
	if n < 1 || n > maxReplicas {
		return core.Errorf(core.CodeBadArgument, "replicas %d is not in 1 … %d", n, maxReplicas)
	}
	return nil
}

func (a *app) applySchema(ctx context.Context, cfg cassandra.Config, limit time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	bar := a.progress("changes of the schema", 0)
	done, err := a.schemas.apply(limited, cfg, func() { bar.add(1) })
	bar.finish()
	if err != nil {
		if ctx.Err() != nil {
			return context.Canceled
		}
		return err
	}
	if done.Differs {
		a.say("note: keyspace %s keeps its replication %s; to change it use ALTER KEYSPACE, and then run nodetool repair on each node", done.Keyspace, replication(done.Replication))
	} else if done.Created && fewReplicas(done.Replication) {
		a.say("note: with fewer than 3 replicas the loss of one node stops the metadata, or loses them; use at least 3 nodes and --replicas 3 for data that matter")
	}
	if a.format != formatTable {
		return a.printer().object([]field{
			{name: "keyspace", value: done.Keyspace}, {name: "created", value: done.Created}, {name: "replication", value: done.Replication},
			{name: "from", value: done.From}, {name: "to", value: done.To},
		})
	}
	for _, line := range appliedLines(done) {
		if _, err := fmt.Fprintln(a.stdout, line); err != nil {
			return err
		}
	}
	return nil
}

// appliedLines say what was done.
func appliedLines(done cassandra.Applied) (out []string) {
	if done.Created {
		out = append(out, fmt.Sprintf("keyspace %s is created: %s", done.Keyspace, replication(done.Replication)))
	}
	switch {
	case done.From == done.To:
		out = append(out, fmt.Sprintf("keyspace %s has schema %d; nothing to do", done.Keyspace, done.To))
	case done.From+1 == done.To:
		out = append(out, fmt.Sprintf("step %d of the schema is applied", done.To))
	default:
		out = append(out, fmt.Sprintf("steps %d to %d of the schema are applied", done.From+1, done.To))
	}
	return out
}

// fewReplicas reports whether no data centre has three replicas.
func fewReplicas(options map[string]string) bool {
	for name, value := range options {
		if n, err := strconv.Atoi(value); name != "class" && err == nil && n >= 3 {
			return false
		}
	}
	return true
}

// replication is a keyspace's replication in words: the class, then the replicas.
func replication(options map[string]string) string {
	out := options["class"]
	for _, name := range slices.Sorted(maps.Keys(options)) {
		if name != "class" {
			out += ", " + name + "=" + options[name]
		}
	}
	return out
}

func (a *app) schemaShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show URL", Short: "Show the schema of a keyspace in Cassandra, and its nodes",
		Long: "Show a keyspace of metadata in Cassandra: its replication and schema, whether this binary works with that schema, the cluster that uses it,\n" +
			"and the nodes of Cassandra. A node is up if it answers this command.\n\n" + cassandraURL,
		Example: "  columba schema show cassandra://10.0.0.1,10.0.0.2,10.0.0.3/columba\n" +
			"  columba schema show cassandra://10.0.0.1/columba -o json | jq .accepted",
		Args: exactly(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			cfg, err := cassandra.ParseURL(args[0])
			if err != nil {
				return err
			}
			return a.showSchema(ctx, cfg)
		}),
	}
}

func (a *app) showSchema(ctx context.Context, cfg cassandra.Config) error {
	limited, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	s, err := a.schemas.describe(limited, cfg)
	switch {
	case ctx.Err() != nil:
		return context.Canceled
	case core.CodeOf(err) == core.CodeNotFound || err != nil && len(s.Nodes) == 0:
		return err
	}
	a.noteSchema(s)
	fields := schemaFields(s, err == nil || s.Version > 0)
	nodes := make([]json.RawMessage, 0, len(s.Nodes))
	for _, n := range s.Nodes {
		nodes = append(nodes, encode(nodeFields(n)))
	}
	if a.format != formatTable {
		if failed := a.printer().object(append(fields, field{name: "nodes", value: nodes})); failed != nil {
			return failed
		}
		return err // why something could not be read
	}
	if failed := a.printer().object(fields); failed != nil {
		return failed
	}
	fmt.Fprintln(a.stdout)
	out := a.fitted("COMMITLOG_SYNC", "RACK")
	for _, n := range s.Nodes {
		out.item(nodeFields(n))
	}
	if failed := out.close(); failed != nil {
		return failed
	}
	return err
}

// schemaFields are of the keyspace; known: its schema could be read.
func schemaFields(s cassandra.SchemaInfo, known bool) []field {
	var schema, accepted, cluster any
	up := 0
	for _, n := range s.Nodes {
		if n.Up {
			up++
		}
	}
	if known {
		schema, accepted = s.Version, s.Refused == nil
	}
	if !s.Cluster.IsZero() {
		cluster = s.Cluster.String()
	}
	return []field{
		{name: "keyspace", value: s.Keyspace}, {name: "replication", value: s.Replication}, {name: "schema", value: schema},
		{name: "newest", value: s.Newest}, {name: "accepted", value: accepted}, {name: "cluster", value: cluster},
		{name: "nodes_up", value: up}, {name: "nodes_total", value: len(s.Nodes)},
		{name: "versions", value: ofNodes(s.Nodes, func(n cassandra.NodeInfo) string { return n.Version })},
		{name: "commitlog_sync", value: ofNodes(s.Nodes, func(n cassandra.NodeInfo) string { return n.CommitLogSync })},
	}
}

// ofNodes are the different values that nodes have.
func ofNodes(nodes []cassandra.NodeInfo, value func(cassandra.NodeInfo) string) []string {
	out := []string{}
	for _, n := range nodes {
		if v := value(n); v != "" && !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return out
}

func nodeFields(n cassandra.NodeInfo) []field {
	state := "down"
	if n.Up {
		state = "up"
	}
	return []field{
		{name: "address", value: n.Address}, {name: "state", value: state}, {name: "version", value: n.Version},
		{name: "data_center", value: n.DataCentre}, {name: "rack", value: n.Rack}, {name: "commitlog_sync", value: n.CommitLogSync},
		{name: "schema_version", value: n.Schema, detail: true},
	}
}

// noteSchema says on stderr what an operator should do something about.
func (a *app) noteSchema(s cassandra.SchemaInfo) {
	periodic, down := []string{}, []string{}
	schemas := ofNodes(s.Nodes, func(n cassandra.NodeInfo) string { return n.Schema })
	for _, n := range s.Nodes {
		if n.CommitLogSync == "periodic" {
			periodic = append(periodic, n.Address)
		}
		if !n.Up {
			down = append(down, n.Address)
		}
	}
	if s.Refused != nil {
		a.say("note: %v", s.Refused)
	}
	if len(down) > 0 {
		a.say("note: Cassandra does not answer on %s", strings.Join(down, ", "))
	}
	if len(schemas) > 1 {
		a.say("note: the nodes do not agree on the schema of all keyspaces; wait for a minute, and then see `nodetool describecluster`")
	}
	if len(periodic) > 0 {
		a.say("note: commitlog_sync is periodic on %s: acknowledged changes are lost when all nodes die at once; set it to batch or group", strings.Join(periodic, ", "))
	}
}
