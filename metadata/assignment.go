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
