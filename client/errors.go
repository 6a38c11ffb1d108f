package client

import (
	"github.com/columbamq/columba/core"
)

// Error is a failure from the catalogue: a stable code, a class, a text that says what to do.
type Error = core.Error

// Sentinels for errors.Is. An ErrUnknownOutcome is neither success nor failure: the message may or may not be stored.
var (
	ErrNotFound       = core.ErrNotFound
	ErrExists         = core.ErrExists
	ErrConflict       = core.ErrConflict
	ErrThrottled      = core.ErrThrottled
	ErrUnavailable    = core.ErrUnavailable
	ErrUnknownOutcome = core.ErrUnknownOutcome
	ErrStale          = core.ErrStale
	ErrBadToken       = core.ErrBadToken
	ErrTooLarge       = core.ErrTooLarge
	ErrBadName        = &core.Error{Code: core.CodeBadName, Text: "bad name"}
	ErrBadArgument    = &core.Error{Code: core.CodeBadArgument, Text: "bad argument"}
	ErrDisabled       = &core.Error{Code: core.CodeDisabled, Text: "disabled"}
)
