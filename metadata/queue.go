package metadata

import (
	"time"

	"github.com/columbamq/columba/core"
)

// QueueRecord is a queue's spec under its id.
type QueueRecord struct {
	ID      core.QueueID   `json:"id"`
	Spec    core.QueueSpec `json:"spec"`
	Created time.Time      `json:"created"`
	// Owner is the group of a built-in queue (dead letters, retry); zero for users' queues.
	Owner core.GroupID `json:"owner,omitzero"`
	// Home is who reads its extents from their beginning: own, or of a retry queue the group that owns it.
	Home core.Home `json:"home,omitzero"`
}

// DeletedQueueRecord is a hint for controllers: the queue is deleted, or about to be, and has extents that are to go.
// Rows of its groups, or of its name, may remain, unless the deletion is done. The hint is written before the queue's
// row is changed. The controller that is responsible for the queue removes it.
type DeletedQueueRecord struct {
	Queue core.QueueID `json:"queue"`
	Path  string       `json:"path"`
	At    time.Time    `json:"at"`
	Done  bool         `json:"done,omitempty"`
}

// NameRecord maps a path to a queue. It carries the whole spec, so that a half-made queue can be finished. The row goes
// when its queue was deleted: a row that is made again has a higher version, so a late change of the old queue never
// changes the new one. A row with a zero Queue names none.
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
