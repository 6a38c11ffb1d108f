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

// ClaimRecord has the done seqs of a share in an at-most-once group, including those that its owner may deliver now. It
// has one owner at a time: the next owner of the share writes its term first, and from then on the owner before cannot
// change the record.
type ClaimRecord struct {
	Owner core.RunID `json:"owner"`
	Term  core.ID    `json:"term"` // of this ownership
	State []byte     `json:"state"`
}
