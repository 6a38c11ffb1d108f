package metadata

import (
	"time"

	"github.com/columbamq/columba/core"
)

// OperationState is where an operation is in its life: pending → running → done | failed.
type OperationState string

const (
	OperationPending OperationState = "pending"
	OperationRunning OperationState = "running"
	OperationDone    OperationState = "done"
	OperationFailed  OperationState = "failed"
)

// OperationRecord is a long change – merge, purge, drain, repair – that survives the process that runs it.
type OperationRecord struct {
	ID      core.ID        `json:"id"`
	Kind    string         `json:"kind"`
	Object  string         `json:"object"` // what it works on; one operation at a time per object
	State   OperationState `json:"state"`
	Done    uint64         `json:"done"`            // progress, in units of the kind
	Total   uint64         `json:"total"`           // 0 = not known
	Error   string         `json:"error,omitempty"` // of a failed one
	By      core.HostID    `json:"by"`              // who runs it
	Created time.Time      `json:"created"`
	Changed time.Time      `json:"changed"`
}
