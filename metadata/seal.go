package metadata

import (
	"time"

	"github.com/columbamq/columba/core"
)

// SealRecord is the state of an extent; it changes by CAS only, always.
type SealRecord struct {
	Extent   core.Extent      `json:"extent"` // a seal must not need the create row
	State    core.ExtentState `json:"state"`
	Floor    core.Seq         `json:"floor"`
	L        core.Seq         `json:"l"`
	Checksum uint32           `json:"checksum"`
	Bytes    uint64           `json:"bytes"`
	// Holders are the stores that hold everything up to L, with their disks in the same order: another disk under the name of a
	// holder is no copy.
	Holders     []core.HostID `json:"holders"`
	HolderDisks []core.DiskID `json:"holder_disks,omitempty"`
	// Version counts the changes of the holders; a store told a newer one refuses deletions decided by an older.
	Version uint64 `json:"version,omitempty"`
	// Forced: an operator's word decided L; Lost is how many records above it were known to be committed.
	Forced  bool      `json:"forced,omitempty"`
	Lost    core.Seq  `json:"lost,omitempty"`
	Home    string    `json:"home"`    // "own" unless a merge or purge moved it
	Reason  string    `json:"reason"`  // why it was sealed
	Attempt core.ID   `json:"attempt"` // of the last change, to recognise one's own after a lost answer
	Changed time.Time `json:"changed"`
	// Ended is when L was decided; zero in rows of before there was retention.
	Ended time.Time `json:"ended,omitzero"`
}
