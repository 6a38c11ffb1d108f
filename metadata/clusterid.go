package metadata

import (
	"context"
	"time"

	"github.com/columbamq/columba/core"
)

// ClusterRecord is the setting with the id of the cluster. It is written once.
type ClusterRecord struct {
	ID   string    `json:"id"`
	Made time.Time `json:"made"`
}

const settingCluster = "cluster-id"

// ReadClusterID returns the id of the cluster that these metadata belong to. CodeNotFound: an older version made them,
// and they have no id yet.
func ReadClusterID(ctx context.Context, s Store) (core.ID, error) {
	r, _, err := Read[ClusterRecord](ctx, s, Settings, SettingKey(settingCluster), Serial)
	if err != nil {
		return core.ID{}, core.Errorf(core.CodeOf(err), "id of the cluster: %w", err)
	}
	id, err := core.ParseID(r.ID)
	if err != nil {
		return core.ID{}, core.Errorf(core.CodeCorrupt, "id of the cluster: the setting %s: %w", settingCluster, err)
	}
	return id, nil
}

// ClusterID is ReadClusterID for the process that holds the metadata. Metadata without an id get one: known, the id
// that the process has from earlier runs, or a new one if that is zero. CodeConflict: the process belongs to another
// cluster, or it belongs to a cluster and the metadata are new.
func ClusterID(ctx context.Context, s Store, known core.ID, now time.Time) (core.ID, error) {
	id, err := ReadClusterID(ctx, s)
	switch {
	case err == nil && (known.IsZero() || known == id):
		return id, nil
	case err == nil:
		return core.ID{}, core.Errorf(core.CodeConflict, "these are the metadata of cluster %s", id)
	case core.CodeOf(err) != core.CodeNotFound:
		return core.ID{}, err
	}
	if !known.IsZero() {
		rows, _, err := s.List(ctx, Settings, PartitionCluster, "", 1, Serial)
		if err != nil {
			return core.ID{}, core.Errorf(core.CodeOf(err), "id of the cluster: %w", err)
		}
		if len(rows) == 0 {
			return core.ID{}, core.Errorf(core.CodeConflict, "these metadata are new")
		}
	}
	if id = known; id.IsZero() {
		id = core.NewID(now)
	}
	err = Create(ctx, s, Settings, SettingKey(settingCluster), ClusterRecord{ID: id.String(), Made: now})
	if core.CodeOf(err) == core.CodeExists {
		return ReadClusterID(ctx, s)
	}
	if err != nil {
		return core.ID{}, core.Errorf(core.CodeOf(err), "id of the cluster: %w", err)
	}
	return id, nil
}
