package metadata

import (
	"github.com/columbamq/columba/core"
)

// NameRecord maps a path to a queue. It carries the whole spec, so that a half-made queue can be finished.
type NameRecord struct {
	Queue core.QueueID   `json:"queue"`
	Spec  core.QueueSpec `json:"spec"`
}
