package frontend

import (
	"context"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// copies is the cluster's setting for queues created without numbers of their own. The first frontend of a cluster makes it from its
// configuration.
type copies struct {
	Replicas    int `json:"replicas"`
	MinReplicas int `json:"min_replicas"`
}

const settingCopies = "copies"

// loadCopies reads the cluster's setting, and makes it in a new cluster.
func (s *service) loadCopies(ctx context.Context) error {
	mine := copies{s.cfg.Replicas, s.cfg.MinReplicas}
	c, _, err := metadata.Read[copies](ctx, s.meta, metadata.Settings, metadata.SettingKey(settingCopies), metadata.Serial)
	if core.CodeOf(err) == core.CodeNotFound {
		c = mine
		if err = metadata.Create(ctx, s.meta, metadata.Settings, metadata.SettingKey(settingCopies), c); core.CodeOf(err) == core.CodeExists {
			c, _, err = metadata.Read[copies](ctx, s.meta, metadata.Settings, metadata.SettingKey(settingCopies), metadata.Serial)
		}
	}
	if err != nil {
		return core.Errorf(core.CodeOf(err), "the cluster's setting for replicas: %w", err)
	}
	if c != mine {
		s.log.Warn("the default number of replicas was fixed when the cluster was first started, and this process's has no effect: "+
			"name --replicas and --min-replicas when you create a queue that shall have others",
			"replicas", c.Replicas, "min_replicas", c.MinReplicas, "no_effect", mine.Replicas)
	}
	s.copies.Store(&c)
	return nil
}
