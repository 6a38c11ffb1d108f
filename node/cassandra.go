package node

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/telemetry"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata/cassandra"
	"github.com/columbamq/columba/metadata/migration"
)

// usesCassandra reports whether the process itself works on metadata in Cassandra. Hosts that only take or store
// messages ask a controller instead, so that they need no access.
func (c Config) usesCassandra() bool {
	return c.inCassandra() && slices.ContainsFunc(c.Roles, readsMetadata)
}

// readsMetadata reports whether a role reads the metadata when it starts.
func readsMetadata(role string) bool {
	return role == RoleController || role == RoleOutput || role == RoleFrontend
}

// relaysMetadata reports whether the process is one of those that such hosts ask.
func (c Config) relaysMetadata() bool {
	return c.inCassandra() && slices.Contains(c.Roles, RoleController)
}

func (c Config) inCassandra() bool { return strings.HasPrefix(c.Metadata, cassandra.Scheme) }

// openCassandra connects to Cassandra; it waits for a minute until a node answers. It comes before the cluster hears of
// this process, so that nobody waits for a host that waits itself.
func (n *Node) openCassandra(ctx context.Context, res *resources) error {
	if err := res.dir.refuseEmbedded(); err != nil {
		return err
	}
	cfg, err := cassandra.ParseURL(n.cfg.Metadata)
	if err != nil {
		return err
	}
	cfg.Log = n.o.Log.With("part", membership.RoleMetadata)
	connecting, cancel := context.WithTimeoutCause(ctx, metadataWait, core.Errorf(core.CodeUnavailable, "no node answered within %s", metadataWait))
	defer cancel()
	store, err := cassandra.Open(connecting, cfg)
	if err != nil {
		return err
	}
	res.meta = store
	res.opened(store.Close)
	if err := n.patiently(ctx, func() error { return migration.Use(ctx, store) }); err != nil {
		return core.Errorf(core.CodeOf(err), "metadata in %s: %w", strings.Join(cfg.Hosts, ", "), err)
	}
	return nil
}

// patientlySay is how often a process says that the metadata still do not answer.
const patientlySay = 10 * time.Second

// patiently calls ask until the metadata answer, for a minute: while nodes of Cassandra start, or do much else, single
// requests fail.
func (n *Node) patiently(ctx context.Context, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, metadataWait)
	defer cancel()
	failing := core.Recurring{Every: patientlySay}
	for {
		err := ask()
		if err == nil || core.CodeOf(err).Exit() != core.ExitUnavailable || ctx.Err() != nil {
			return err
		}
		if failing.Failed(time.Now()) {
			n.o.Log.Warn("the metadata do not answer; this process asks again until they do", "at_most", metadataWait, telemetry.KeyErr, err)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(metadataPause):
		}
	}
}

// relay answers for the metadata in Cassandra.
type relay struct{ service }

var _ role = (*relay)(nil)

func newRelay(res *resources) *relay {
	r := &relay{newService(res.meta)}
	r.serve = res.gossip != nil
	return r
}

// Run returns when ctx ends.
func (r *relay) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
