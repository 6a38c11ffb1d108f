package core

import (
	"bytes"
	"cmp"
)

// ListVersion orders the lists of a queue's shares for one output host, whoever made them. The zero value is below all
// others.
type ListVersion struct {
	Counter    uint64
	Controller HostID // that made the list
	Run        RunID  // of that controller
}

// Compare is negative when v is older than o, and 0 when both name the same list.
func (v ListVersion) Compare(o ListVersion) int {
	return cmp.Or(
		cmp.Compare(v.Counter, o.Counter), cmp.Compare(v.Controller, o.Controller), bytes.Compare(v.Run.ID[:], o.Run.ID[:]),
	)
}
