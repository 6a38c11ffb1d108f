package metadata

import (
	"time"

	"github.com/columbamq/columba/core"
)

// GroupRecord is a consumer group under its queue and name. The record of a deleted group stays, with StatusDeleted,
// until a group of that name is created again.
type GroupRecord struct {
	ID      core.GroupID   `json:"id"`
	Queue   core.QueueID   `json:"queue"`
	Spec    core.GroupSpec `json:"spec"`
	Created time.Time      `json:"created"`
	Epoch   uint64         `json:"epoch"` // raised by each rewind; checkpoints of others are ignored
	// Rewind is one under way: as long as it is there the group counts as one that has consumed nothing.
	Rewind *Rewind `json:"rewind,omitempty"`
	Tried  uint64  `json:"tried,omitempty"` // the highest epoch of a start or a rewind that came to nothing: its positions may be there
	First  uint64  `json:"first,omitempty"` // the epoch in which it was started; later ones are of rewinds
	// LastSeek is the rewind that began the present epoch; nil in the first one.
	LastSeek *Seek        `json:"last_seek,omitempty"`
	DLQ      core.QueueID `json:"dlq"`
	Retry    core.QueueID `json:"retry,omitzero"` // its retry queue; zero until a first message moves there
	// Unreached are controllers that were not reached when it was started: its start does not concern what was published
	// where they are. nil: there were none, as in almost all groups, of which output hosts keep many.
	Unreached *[]core.HostID `json:"unreached,omitempty"`
	Starts    uint32         `json:"starts,omitempty"` // the calls that began to start it; each took an epoch of its own, from 0
	Started   bool           `json:"started"`          // its dead letter queue is there and its start positions are fixed; before, it is half made
	// Forgotten is of a deleted group: no other table has rows of it any more.
	Forgotten bool `json:"forgotten,omitempty"`
}

// Rewound reports whether the group was rewound since it was started.
func (g GroupRecord) Rewound() bool { return g.Epoch > g.First }

// Rewind is a seek under way: the next epoch of a group, and the start of that epoch. A controller is writing its
// positions. Records call a seek a rewind.
type Rewind struct {
	Epoch uint64     `json:"epoch"` // above all before, also of rewinds that came to nothing
	To    core.Start `json:"to"`    // latest with an instant: what was latest then, see core.Start.AsOf
	Began time.Time  `json:"began"`
	// By and Run are the controller that writes the positions; zero in rows of before they were kept.
	By  core.HostID `json:"by,omitempty"`
	Run core.RunID  `json:"run,omitzero"`
}

// DeletedGroupRecord is a hint for controllers: the group is deleted, or about to be, and other tables still have rows
// of it. It is written before the group's row is changed, for the row is another group's once one of that name is made
// again.
type DeletedGroupRecord struct {
	Group core.GroupID `json:"group"`
	Queue core.QueueID `json:"queue"`
	Name  string       `json:"name"`
	At    time.Time    `json:"at"`
}

// Seek is a finished rewind.
type Seek struct {
	To core.Start `json:"to"`
	At time.Time  `json:"at"`
	// Unreached are controllers that were not reached: the rewind does not concern what was published where they are.
	Unreached []core.HostID `json:"unreached,omitempty"`
}
