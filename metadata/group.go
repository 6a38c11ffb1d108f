package metadata

import (
	"time"

	"github.com/columbamq/columba/core"
)

// GroupRecord is a consumer group under its queue and name.
type GroupRecord struct {
	ID      core.GroupID   `json:"id"`
	Queue   core.QueueID   `json:"queue"`
	Spec    core.GroupSpec `json:"spec"`
	Created time.Time      `json:"created"`
	Epoch   uint64         `json:"epoch"` // raised by each rewind; checkpoints of others are ignored
	DLQ     core.QueueID   `json:"dlq"`
}
