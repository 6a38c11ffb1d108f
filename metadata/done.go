package metadata

import (
	"github.com/columbamq/columba/core"
)

// DoneRecord says that a group has consumed a sealed extent to its end.
type DoneRecord struct {
	L     core.Seq `json:"l"`
	Epoch uint64   `json:"epoch"` // of the group, when it did; a rewind makes it void
}
