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

// DeletedQueueRecord is a hint for controllers: the queue is deleted, or about to be, and its groups, or its name, may have rows that say otherwise. It is
// written before the queue's row is changed.
type DeletedQueueRecord struct {
	Queue core.QueueID `json:"queue"`
	Path  string       `json:"path"`
	At    time.Time    `json:"at"`
}
