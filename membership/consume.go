package membership

import "github.com/columbamq/columba/core"

// ConsumeHosts is to how many output hosts consumers of a group connect, whether or not those own a share of it at the
// moment: so a share that moves, or a new one, is delivered at once.
const ConsumeHosts = 4

// Consume is which of the output hosts consumers of a group connect to, all owners of its shares among them. Every host
// of the cluster chooses alike.
func Consume(outputs []Host, group core.GroupID, owners map[core.HostID]bool) []Host {
	var out []Host
	for i, h := range core.Rank(group.String(), outputs, func(h Host) core.HostID { return h.ID }) {
		if i < ConsumeHosts || owners[h.ID] {
			out = append(out, h)
		}
	}
	return out
}
