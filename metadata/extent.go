package metadata

import (
	"time"

	"github.com/columbamq/columba/core"
)

// ExtentRecord is the immutable create row of an extent.
type ExtentRecord struct {
	core.Extent
	Created time.Time `json:"created"`
	// Wanted is how many replicas the queue wants; more than the extent was made with when stores were missing. 0: as many
	// as it has.
	Wanted int `json:"wanted,omitempty"`
	// Home is who reads it from its beginning. Once there is a seal row that one says it.
	Home core.Home `json:"home,omitzero"`
	// Before is the extent of the place before in the chain of a CP queue; zero: it has the first place, or its row is of
	// an earlier version.
	Before core.ExtentID `json:"before,omitzero"`
	// Minority is who made the extent while no majority of the metadata answered. Nobody else assigns its shares, until
	// that controller has written the row again without it. Zero: the row is at Quorum.
	Minority Maker `json:"minority,omitzero"`
}

// Maker is a run of a controller.
type Maker struct {
	Controller core.HostID `json:"controller"`
	Run        core.RunID  `json:"run"`
}
