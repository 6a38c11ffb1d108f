package node

import (
	"slices"

	"github.com/columbamq/columba/controller"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/frontend"
	"github.com/columbamq/columba/inputhost"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/outputhost"
	"github.com/columbamq/columba/storehost"
)

// buildRoles makes the roles that the configuration asks for, in the order in which they start: what others depend on
// first.
func (n *Node) buildRoles(res *resources) ([]namedRole, error) {
	var out []namedRole
	for _, name := range Roles {
		if !slices.Contains(n.cfg.Roles, name) {
			continue
		}
		r, err := n.buildRole(name, res)
		if err != nil {
			return nil, err
		}
		out = append(out, namedRole{name, r})
	}
	return out, nil
}

// foundation serves the metadata, or waits for them where the roles need them. A process that need not wait checks
// whether it has met another cluster.
func (n *Node) foundation(res *resources) []namedRole {
	j := newJoiner(res, n.cfg.Join)
	var out []namedRole
	switch {
	case n.cfg.holdsMetadata():
		out = append(out, namedRole{membership.RoleMetadata, newHolder(res, n.o.Log.With("part", membership.RoleMetadata))})
	case n.cfg.relaysMetadata():
		out = append(out, namedRole{membership.RoleMetadata, newRelay(res)})
	case n.cfg.usesCassandra():
	case slices.Equal(n.cfg.Roles, []string{RoleStore}):
		out = append(out, namedRole{"cluster", &meeter{res}})
	default:
		return []namedRole{{membership.RoleMetadata, &seeker{finder: res.finder, store: res.meta, joiner: j}}}
	}
	if len(n.cfg.Join) > 0 {
		out = append(out, namedRole{"join", j})
	}
	return out
}

func (n *Node) buildRole(name string, res *resources) (role, error) {
	log := n.o.Log
	switch name {
	case RoleStore:
		cfg := storehost.DefaultConfig()
		cfg.Dir = res.dir.store()
		return storehost.New(cfg, storehost.Deps{
			Log: log, Metrics: res.metrics, Self: res.self.ID, Run: res.self.Run, Tables: res.files.tables, Confirm: res.controllers(),
		})
	case RoleController:
		cfg := controller.DefaultConfig()
		cfg.Alone = n.cfg.holdsMetadata()
		return controller.New(cfg, controller.Deps{
			Log: log, Metrics: res.metrics, Meta: res.meta, Peers: res.peers, Members: res.members,
		})
	case RoleOutput:
		return outputhost.New(outputhost.DefaultConfig(), outputhost.Deps{
			Log: log, Metrics: res.metrics, Meta: res.meta, Peers: res.peers, Members: res.members,
		})
	case RoleInput:
		return inputhost.New(inputhost.DefaultConfig(), inputhost.Deps{
			Log: log, Metrics: res.metrics, Meta: res.meta, Peers: res.peers, Members: res.members,
		})
	case RoleFrontend:
		cfg := frontend.DefaultConfig()
		cfg.Replicas = n.cfg.replicas()
		return frontend.New(cfg, frontend.Deps{
			Log: log, Metrics: res.metrics, Meta: res.meta, Peers: res.peers, Members: res.members,
		})
	}
	return nil, core.Errorf(core.CodeInternal, "role %s has no builder", name)
}
