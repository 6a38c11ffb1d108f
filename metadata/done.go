package metadata

import (
	"github.com/columbamq/columba/core"
)

// DoneRecord says that a group has consumed a sealed extent to its end.
type DoneRecord struct {
	L     core.Seq `json:"l"`
	Epoch uint64   `json:"epoch"`           // of the group, when it did; a rewind makes it void …
	Stays bool     `json:"stays,omitempty"` // … unless it does not touch the extent: one of what was merged or parked
}

// In reports whether it holds in an epoch of the group.
func (d DoneRecord) In(epoch uint64) bool { return d.Stays || d.Epoch == epoch }
