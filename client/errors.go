package client

import (
	"github.com/columbamq/columba/core"
)

// Error is every error of this package's calls: a stable code, the class of the code, and a text that says what to do.
type Error = core.Error

// Sentinels for errors.Is. ErrUnknownOutcome is neither success nor failure: the message may or may not be stored, or
// the change may or may not be made. After an error whose Code.Class is not unknown, nothing was stored or changed.
// ErrUnavailable and ErrThrottled: try again later; ErrNoMajority and ErrNoSpace are cases of ErrUnavailable. The
// others: change the call.
var (
	ErrNotFound       = core.ErrNotFound
	ErrExists         = core.ErrExists
	ErrConflict       = core.ErrConflict
	ErrThrottled      = core.ErrThrottled
	ErrUnavailable    = core.ErrUnavailable
	ErrNoMajority     = core.ErrNoMajority
	ErrNoSpace        = core.ErrNoSpace
	ErrUnknownOutcome = core.ErrUnknownOutcome
	ErrStale          = core.ErrStale
	ErrBadToken       = core.ErrBadToken
	ErrTooLarge       = core.ErrTooLarge
	ErrBadName        = &core.Error{Code: core.CodeBadName, Text: "bad name"}
	ErrBadArgument    = &core.Error{Code: core.CodeBadArgument, Text: "bad argument"}
	ErrDisabled       = &core.Error{Code: core.CodeDisabled, Text: "disabled"}
	ErrDraining       = core.ErrDraining
)
