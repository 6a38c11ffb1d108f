package outputhost

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/wire"
)

// tellRoutes tells the consumers of all groups, whenever hosts came or went, until ctx ends. It has a loop of its own: the metadata may
// be slow.
func (h *Host) tellRoutes(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.routing:
			h.tellRoutesNow(ctx)
		}
	}
}

// tellRoutesNow gives up those it does not come to within Config.CallTimeout: refresh tells them.
func (h *Host) tellRoutesNow(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.CallTimeout)
	defer cancel()
	for _, g := range h.groupList() {
		g.tellRoute(ctx)
	}
}

// tellRoute sends the group's consumers the complete list of the hosts that they shall be connected to, when it is not the one they were
// sent last. A host that drains names the others.
func (g *group) tellRoute(ctx context.Context) {
	g.mu.Lock()
	wanted := len(g.mu.consumers) > 0
	g.mu.Unlock()
	if !wanted {
		return
	}
	hosts, err := g.route(ctx)
	if err != nil {
		g.h.log.Debug("cannot read the owners of a group; its consumers keep their connections", "group", g.name, "err", err)
		return
	}
	self := g.h.deps.Members.Self().ID
	if g.h.draining.Load() {
		hosts = slices.DeleteFunc(hosts, func(m membership.Host) bool { return m.ID == self })
	}
	if len(hosts) == 0 {
		return
	}
	m := &pb.Reconfigure{Version: uint64(g.h.deps.Now().UnixMicro())}
	var key strings.Builder
	for _, o := range hosts {
		m.Hosts = append(m.Hosts, &pb.HostAddress{Id: string(o.ID), Address: o.Address})
		key.WriteString(string(o.ID) + " " + o.Address + " " + o.Run.String() + "\n") // a new run has to be connected to again
	}
	body, err := proto.Marshal(m)
	if err != nil {
		g.h.log.Error("cannot encode a list of hosts for consumers", "group", g.name, "err", err)
		return
	}
	var tell []*consumer
	g.mu.Lock()
	for _, c := range g.mu.consumers {
		if c.told != key.String() {
			c.told = key.String()
			tell = append(tell, c)
		}
	}
	g.mu.Unlock()
	for _, c := range tell {
		c.s.mux.Conn.Post(wire.AppendFrame(nil, wire.TypeReconfigure, c.stream, body))
	}
}

// route are the hosts that consumers of the group shall be connected to.
func (g *group) route(ctx context.Context) ([]membership.Host, error) {
	outputs := g.h.deps.Members.Hosts("outputhost")
	owners := make(map[core.HostID]bool)
	if len(outputs) > membership.ConsumeHosts {
		for a, err := range metadata.All[metadata.AssignmentRecord](ctx, g.h.deps.Meta, metadata.Assignments, g.id.String(), metadata.One) {
			if err != nil {
				return nil, err
			}
			owners[a.Value.Owner] = true
		}
	}
	return membership.Consume(outputs, g.id, owners), nil
}
