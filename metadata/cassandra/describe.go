package cassandra

import (
	"context"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// SchemaInfo is what a keyspace has, and which nodes serve it.
type SchemaInfo struct {
	Keyspace    string
	Replication map[string]string // as Cassandra has it: "class", and the replicas of each data centre
	Version     int               // 0: there is no schema
	Newest      int               // that this binary knows
	Refused     error             // CodeVersion: this binary does not work with it; nil: it does
	Cluster     core.ID           // zero: no server has used the keyspace yet
	Nodes       []NodeInfo
}

// Describe asks each node, and reads the schema of a keyspace. With an error it returns what it has read until then.
// Errors: CodeBadArgument, CodeNotFound when there is no keyspace, CodeUnavailable.
func Describe(ctx context.Context, cfg Config) (SchemaInfo, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return SchemaInfo{}, err
	}
	all, err := steps(cfg.Keyspace)
	if err != nil {
		return SchemaInfo{}, err
	}
	c, err := cfg.connectEach(cfg.Request)
	if err != nil {
		return SchemaInfo{}, err
	}
	defer c.close()
	out := SchemaInfo{Keyspace: cfg.Keyspace, Newest: len(all), Nodes: c.members(ctx, cfg.Request)}
	if ctx, err = through(ctx, out.Nodes); err != nil {
		return out, err
	}
	if out.Replication, err = keyspaceReplication(ctx, c.session, cfg.Keyspace); err != nil {
		return out, err
	}
	if out.Replication == nil {
		return out, core.Errorf(core.CodeNotFound, "keyspace %s does not exist; create it with `columba schema apply`", cfg.Keyspace)
	}
	if out.Version, err = schemaVersion(ctx, c.session, cfg.Keyspace); err != nil {
		return out, err
	}
	out.Refused = accept(cfg.Keyspace, out.Version, out.Newest)
	if out.Version == 0 {
		return out, nil
	}
	out.Cluster, err = metadata.ReadClusterID(ctx, newStore(driver{c.session}, cfg))
	if core.CodeOf(err) == core.CodeNotFound {
		err = nil
	}
	return out, err
}
