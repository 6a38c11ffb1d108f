// Package membership owns the list of the cluster's hosts. The list is a hint: it names hosts that can be asked, and
// never proves that a host is dead. A caller that acts on an absence confirms it with a direct call first.
package membership

import (
	"cmp"
	"slices"

	"github.com/columbamq/columba/core"
)

// Host is one process of the cluster as the others see it.
type Host struct {
	ID      core.HostID
	Roles   []string // sorted
	Address string   // host:port of its one port
	Zone    string   // "" when the cluster has no zones
	Run     core.RunID
}

// Marks of hosts that answer for the metadata of a cluster. They cannot be configured, and users do not see them.
const (
	// RoleMetadata is the host that holds the embedded metadata. A cluster has one.
	RoleMetadata = "metadata"
	// RoleRelay is a host that reads and changes the metadata in Cassandra for hosts that have no access. A cluster has
	// one for each controller.
	RoleRelay = "metadata-relay"
)

// Marks are those roles.
var Marks = []string{RoleMetadata, RoleRelay}

// Has reports whether the host serves a role.
func (h Host) Has(role string) bool { return slices.Contains(h.Roles, role) }

// Monitor watches the membership. Safe for concurrent use. The caller may keep the returned hosts, and must not change
// them.
type Monitor interface {
	// Hosts are the members that serve a role, all members for "", sorted by id. The own host is among them when it serves
	// it.
	Hosts(role string) []Host
	// Gone are the hosts that were members within RememberGone while this process ran, and are none now, sorted by id.
	Gone() []Gone
	// Self is the own host.
	Self() Host
	// Changed calls wake after the view has changed, until stop. Changes may be folded into one call, a call under way may
	// outlast stop. wake must not block.
	Changed(wake func()) (stop func())
}

// Find is the member with an id; ok is false when the view has none.
func Find(m Monitor, id core.HostID) (host Host, ok bool) {
	hosts := m.Hosts("")
	i, ok := slices.BinarySearchFunc(hosts, id, func(h Host, id core.HostID) int { return cmp.Compare(h.ID, id) })
	if !ok {
		return Host{}, false
	}
	return hosts[i], true
}

// MetadataRun is the run of the live host that holds the embedded metadata; zero when there is none.
func MetadataRun(m Monitor) core.RunID {
	for _, h := range m.Hosts(RoleMetadata) {
		return h.Run
	}
	return core.RunID{}
}
