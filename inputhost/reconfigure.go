package inputhost

import (
	"slices"

	"google.golang.org/protobuf/proto"

	pb "github.com/columbamq/columba/api/columbav1"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/membership"
	"github.com/columbamq/columba/wire"
)

// hostsOf are the input hosts of a queue, of those there are; frontends answer the same.
func hostsOf(queue core.QueueID, inputs []membership.Host) []membership.Host {
	ranked := core.Rank(queue.ID.String(), inputs, func(h membership.Host) core.HostID { return h.ID })
	return ranked[:min(len(ranked), core.PublishHosts)]
}

// reconfigure tells the publishers of queues whose input hosts have changed the complete list. One that has no room for
// it learns of the next change, or when its connection ends.
func (h *Host) reconfigure(was, inputs []membership.Host) {
	version := h.nextList()
	for _, q := range h.list() {
		if q.ordered { // its publishers stay where the head of the chain is
			continue
		}
		hosts := hostsOf(q.id, inputs)
		if len(hosts) == 0 || slices.EqualFunc(hosts, hostsOf(q.id, was), sameAddress) {
			continue
		}
		m := &pb.Reconfigure{Version: version}
		for _, host := range hosts {
			m.Hosts = append(m.Hosts, &pb.HostAddress{Id: string(host.ID), Address: host.Address})
		}
		body, err := proto.Marshal(m)
		if err != nil {
			h.log.Error("cannot encode the input hosts", "queue", q.path, "err", err)
			continue
		}
		for _, p := range q.streams() {
			p.s.mux.Conn.Post(wire.AppendFrame(nil, wire.TypeReconfigure, p.stream, body))
		}
	}
}

// nextList is the version of the next list of hosts: higher than all before it in this run, whatever the clock does.
// Publishers compare those of one connection only.
func (h *Host) nextList() uint64 {
	h.lists = max(h.lists+1, uint64(h.deps.now().UnixNano()))
	return h.lists
}

func sameAddress(a, b membership.Host) bool { return a.ID == b.ID && a.Address == b.Address }
