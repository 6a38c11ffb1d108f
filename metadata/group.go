package metadata

import (
	"time"

	"github.com/columbamq/columba/core"
)

// GroupRecord is a consumer group under its queue and name. That of a deleted group stays, with StatusDeleted, until a group of
// that name is created again.
type GroupRecord struct {
	ID      core.GroupID   `json:"id"`
	Queue   core.QueueID   `json:"queue"`
	Spec    core.GroupSpec `json:"spec"`
	Created time.Time      `json:"created"`
	Epoch   uint64         `json:"epoch"` // raised by each rewind; checkpoints of others are ignored
	DLQ     core.QueueID   `json:"dlq"`
	Started bool           `json:"started"` // its dead letter queue is there and its start positions are fixed; before, it is half made
}
