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
