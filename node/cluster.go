package node

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
)

// A process that belongs to no cluster yet looks for the id of its metadata's: so often, when membership changes, and
// each time for so long.
const (
	meetEvery = time.Second
	meetLimit = 5 * time.Second
)

// joinCluster makes the process, and all its store hosts, part of the cluster with that id. One goroutine at a time
// calls it.
func (r *resources) joinCluster(id core.ID) error {
	if err := r.dir.join(id); err != nil {
		return err
	}
	if err := r.cluster.Set(id); err != nil {
		return err
	}
	for _, g := range r.gossips {
		g.SetCluster(id)
	}
	return nil
}

// ownCluster is for a process that reaches the metadata by itself: they are those of the cluster that its directory
// belongs to. where says where they are, and other what to do if they are those of another cluster.
//
// Metadata that are new are the beginning of a cluster. They do not begin one among hosts that belong to another: these
// would ask them for what only their own metadata know.
func (r *resources) ownCluster(ctx context.Context, where, other string) error {
	if r.gossip != nil && r.dir.cluster().IsZero() {
		others := r.gossip.Foreign() // before the id is read: what they belong to was made before
		_, err := metadata.ReadClusterID(ctx, r.meta)
		r.begins = core.CodeOf(err) == core.CodeNotFound
		if r.begins && len(others) > 0 {
			return core.Errorf(core.CodeConflict, "host %s at %s belongs to a cluster whose metadata are not in %s; %s, or start this one without --join and away from that cluster",
				others[0].ID, others[0].Address, where, other)
		}
	}
	id, err := metadata.ClusterID(ctx, r.meta, r.dir.cluster(), time.Now())
	if core.CodeOf(err) == core.CodeConflict {
		return core.Errorf(core.CodeConflict, "data directory %s belongs to cluster %s: %w; restore its metadata, or choose another directory with --data",
			r.dir.path, r.dir.host.Cluster, err)
	}
	if err != nil {
		return err
	}
	return r.joinCluster(id)
}

// joined reports whether a host of another process says that it belongs to the cluster of this one.
func (r *resources) joined() bool {
	return slices.ContainsFunc(r.gossip.Joined(), func(h membership.Host) bool {
		return !slices.ContainsFunc(r.stores, func(s *extraStore) bool { return s.self.ID == h.ID })
	})
}

// meetCluster is for the others: they join the cluster of the first metadata that they meet. Metadata of an older
// version have no id.
func (r *resources) meetCluster(ctx context.Context) error {
	if !r.cluster.ID().IsZero() {
		return nil
	}
	id, err := metadata.ReadClusterID(ctx, r.meta)
	if core.CodeOf(err) == core.CodeNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	return r.joinCluster(id)
}

// meeter is the part that joins a cluster whose metadata are met after the start.
type meeter struct{ res *resources }

var _ role = (*meeter)(nil)

// Routes has none.
func (m *meeter) Routes(*http.ServeMux) {}

// Start does not wait: a store serves without metadata.
func (m *meeter) Start(context.Context) error { return nil }

// Run looks until the cluster is known.
func (m *meeter) Run(ctx context.Context) error {
	tick := time.NewTicker(meetEvery)
	defer tick.Stop()
	changed := make(chan struct{}, 1)
	defer m.res.members.Changed(func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})()
	for {
		if err := m.meet(ctx); core.CodeOf(err) == core.CodeConflict {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-changed:
		}
	}
}

func (m *meeter) meet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, meetLimit)
	defer cancel()
	return m.res.meetCluster(ctx)
}

// Stop has nothing to release.
func (m *meeter) Stop(context.Context) error { return nil }
