package dispatch

import "time"

// OwnerLease is for how long the owner of a share goes on handing out after it last asked to and was heard. Nobody else is given the share
// before OwnerGone has passed since the controller heard the owner; the difference is for what was decided just before the end of the lease.
const (
	OwnerLease = 2 * time.Second
	OwnerGone  = OwnerLease + 500*time.Millisecond
)
