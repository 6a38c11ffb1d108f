package metadata

import (
	"time"

	"github.com/columbamq/columba/core"
)

// LeaseRecord gives one run of a host the exclusive right to a piece of work until Expires. Epoch goes up by one with each
// change of the holder; what the holder writes carries it.
type LeaseRecord struct {
	Name    string      `json:"name"`
	Holder  core.HostID `json:"holder"`
	Run     core.RunID  `json:"run"`
	Epoch   uint64      `json:"epoch"`
	Expires time.Time   `json:"expires"`
}
