package metadata

import (
	"github.com/columbamq/columba/core"
)

// AssignmentRecord gives a (group, extent) to an output host.
type AssignmentRecord struct {
	Group   core.GroupID `json:"group"`
	Queue   core.QueueID `json:"queue"`
	Name    string       `json:"name"` // of the group
	Extent  core.Extent  `json:"extent"`
	Counter uint64       `json:"counter"`
	By      core.HostID  `json:"by"`
	Owner   core.HostID  `json:"owner"`
	Run     core.RunID   `json:"run"`
}

// ClaimRecord is what is done of a share in a group that delivers at most once, with what its owner may hand out. It has one owner at a
// time: who takes the share over makes the record its own, and from then on nobody else can change it.
type ClaimRecord struct {
	Owner core.RunID `json:"owner"`
	Term  core.ID    `json:"term"` // of this ownership
	State []byte     `json:"state"`
}
