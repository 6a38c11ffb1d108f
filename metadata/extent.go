package metadata

import (
	"time"

	"github.com/columbamq/columba/core"
)

// ExtentRecord is the immutable create row of an extent.
type ExtentRecord struct {
	core.Extent
	Created time.Time `json:"created"`
}
