package metadata

import (
	"context"
	"slices"
	"time"

	"github.com/columbamq/columba/core"
)

// OperationKind is the kind of an operation: a merge or a purge.
type OperationKind string

const (
	OperationMerge OperationKind = "merge" // dead letters back into their group
	OperationPurge OperationKind = "purge" // nobody reads them any more: dead letters, or the messages of a queue
)

// OperationState is the state of an operation: running → done | cancelled | failed.
type OperationState string

const (
	OperationRunning   OperationState = "running"
	OperationDone      OperationState = "done"
	OperationCancelled OperationState = "cancelled"
	OperationFailed    OperationState = "failed"
)

// OperationRecord is a long change of a queue, most often of one of dead letters. It survives the process that runs it:
// any controller goes on from it. The row of its object holds the running operation, or the last one, so there is one
// at a time. Earlier operations are kept under their ids.
type OperationRecord struct {
	ID      core.ID        `json:"id"`
	Kind    OperationKind  `json:"kind"`
	Object  core.QueueID   `json:"object"` // the queue whose extents it concerns
	Queue   core.QueueID   `json:"queue"`  // of the group
	Group   core.GroupID   `json:"group"`  // whose dead letters it concerns; zero: Object is the queue itself
	Path    string         `json:"path"`   // of the queue
	Name    string         `json:"name"`   // of the group
	Rate    int            `json:"rate,omitempty"`
	State   OperationState `json:"state"`
	Error   string         `json:"error,omitempty"` // why it failed, or what it waits for
	Who     string         `json:"who"`             // asked for it
	By      core.HostID    `json:"by"`              // the controller that took it on last
	Created time.Time      `json:"created"`
	Changed time.Time      `json:"changed"`

	// Covered: Extents are fixed. It concerns those that were there when it started.
	Covered bool            `json:"covered,omitempty"`
	Extents []core.ExtentID `json:"extents,omitempty"`
	Left    int             `json:"left,omitempty"` // extents that were there, too, and are for another operation
	// Unreached are controllers that were not reached when Extents were fixed: what was published where they are is not
	// among them.
	Unreached []core.HostID `json:"unreached,omitempty"`
	Sealed    int           `json:"sealed,omitempty"`  // how many of them have their end …
	Total     uint64        `json:"total,omitempty"`   // … and the messages in these
	Moved     int           `json:"moved,omitempty"`   // how many of them are through …
	Done      uint64        `json:"done,omitempty"`    // … and the messages in these
	Widened   bool          `json:"widened,omitempty"` // of a queue's purge: Extents have those, too, that its groups alone read, of other queues
	Next      time.Time     `json:"next,omitzero"`     // by its rate, no further one before …
	Pause     time.Duration `json:"pause,omitempty"`   // … which was so long after the last one: a clock that differs makes it no longer

	// Selection: not all of them; nil: all.
	Selection *core.Selection `json:"selection,omitempty"`
	Search    *Search         `json:"search,omitempty"` // of a selection
	// Decided: what the search found is out of its extents, and visible in the staging extent; what is missing of that is
	// only done.
	Decided bool `json:"decided,omitempty"`
	Shown   bool `json:"shown,omitempty"`   // the staging extent is the group's
	Cleared bool `json:"cleared,omitempty"` // after its end: nothing that only the operation needed is left
}

// Search is the progress of a selection: the part of the extents that was searched and, for a merge, copied.
type Search struct {
	Step    uint64          `json:"step"`              // counts its changes
	Stage   core.Extent     `json:"stage,omitzero"`    // where the copies go
	Staged  bool            `json:"staged,omitempty"`  // its rows are there
	Discard []core.ExtentID `json:"discard,omitempty"` // staging extents that came to nothing
	Extents int             `json:"extents,omitempty"` // how many of the operation's extents are through
	From    core.Seq        `json:"from,omitempty"`    // where it goes on in the next of them
	Looked  uint64          `json:"looked,omitempty"`  // messages that were compared …
	Found   uint64          `json:"found,omitempty"`   // … and fit

	// How far Stage goes, and how it ends there.
	Last       core.Seq `json:"last,omitempty"`
	Checksum   uint32   `json:"checksum,omitempty"`
	AppendTime int64    `json:"append_time,omitempty"`
}

// SelectedRecord has the messages of one extent that an operation found.
type SelectedRecord struct {
	Found []byte `json:"found"` // an ack window
	Count uint64 `json:"count"`
}

// Ended reports whether the operation has ended.
func (r OperationRecord) Ended() bool { return r.State != OperationRunning }

// FindOperation reads an operation by its id; CodeNotFound. CodeCorrupt: a row that may be the operation's is damaged.
func FindOperation(ctx context.Context, s Store, id core.ID) (OperationRecord, error) {
	var damaged error
	for r, err := range All[OperationRecord](ctx, s, Operations, PartitionOperation, Serial) {
		switch {
		case r.Damaged(err):
			damaged = err
		case err != nil || r.Value.ID == id:
			return r.Value, err
		}
	}
	r, _, err := Read[OperationRecord](ctx, s, Operations, EndedOperationKey(id), Serial)
	switch {
	case core.CodeOf(err) != core.CodeNotFound:
	case damaged != nil:
		err = core.Errorf(core.CodeCorrupt, "operation %s is not among those that can be read: %w", id, damaged)
	default:
		err = core.Errorf(core.CodeNotFound, "operation %s does not exist, or ended long ago", id)
	}
	return r, err
}

// ListOperations reads those that run, or all, the newest first. It reads at Quorum.
func ListOperations(ctx context.Context, s Store, ended bool) (out []OperationRecord, err error) {
	for _, partition := range []string{PartitionEnded, PartitionOperation} {
		for r, err := range All[OperationRecord](ctx, s, Operations, partition, Quorum) {
			if err != nil {
				return nil, err
			}
			if ended || !r.Value.Ended() {
				out = append(out, r.Value)
			}
		}
	}
	slices.SortFunc(out, func(a, b OperationRecord) int { return slices.Compare(b.ID[:], a.ID[:]) })
	return slices.CompactFunc(out, func(a, b OperationRecord) bool { return a.ID == b.ID }), nil
}
