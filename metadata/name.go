package metadata

import (
	"github.com/columbamq/columba/core"
)

// NameRecord maps a path to a queue. It carries the whole spec, so that a half-made queue can be finished. The name of a deleted
// queue stays, with a zero Queue: a row that was removed and made again would begin at version 1 again, and a change that was
// meant for the old queue, and came late, could hit the new one.
type NameRecord struct {
	Queue core.QueueID   `json:"queue,omitzero"`
	Spec  core.QueueSpec `json:"spec"`
	Owner core.GroupID   `json:"owner,omitzero"` // see QueueRecord
	Home  core.Home      `json:"home,omitzero"`  // the same
}

// Record is the row of the name's queue as it is made.
func (n NameRecord) Record() QueueRecord {
	return QueueRecord{ID: n.Queue, Spec: n.Spec, Created: n.Queue.Time().UTC(), Owner: n.Owner, Home: n.Home}
}
