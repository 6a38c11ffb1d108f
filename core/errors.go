package core

import (
	"errors"
	"fmt"
	"time"
)

// Class is the class of an error: it says whether the same call can succeed later.
type Class uint8

const (
	// ClassFatal: the same call will fail again; change the call.
	ClassFatal Class = iota
	// ClassRetryable: nothing was done; try again, perhaps elsewhere.
	ClassRetryable
	// ClassThrottled: nothing was done; try again after RetryAfter.
	ClassThrottled
	// ClassUnknown: it may or may not have been done. Never report it as success nor as failure.
	ClassUnknown
)

func (c Class) String() string {
	switch c {
	case ClassRetryable:
		return "retryable"
	case ClassThrottled:
		return "throttled"
	case ClassUnknown:
		return "unknown_outcome"
	}
	return "fatal"
}

// Code names one case of failure, the same in RPC details, frames, the client and the CLI. Codes are stable.
type Code string

// The catalogue. Each code has one class and one CLI exit code (see codes).
const (
	CodeBadName       Code = "bad_name"
	CodeBadID         Code = "bad_id"
	CodeBadArgument   Code = "bad_argument"
	CodeBadFrame      Code = "bad_frame"
	CodeBadRecord     Code = "bad_record"
	CodeBadToken      Code = "bad_token"
	CodeTooLarge      Code = "too_large"
	CodeVersion       Code = "unsupported_version"
	CodeNotFound      Code = "not_found"
	CodeExists        Code = "already_exists"
	CodeConflict      Code = "conflict"
	CodeStale         Code = "stale"
	CodeMoved         Code = "moved"
	CodeDisabled      Code = "disabled"
	CodeUnsupported   Code = "unsupported"
	CodeThrottled     Code = "throttled"
	CodeUnavailable   Code = "unavailable"
	CodeNoMajority    Code = "no_majority" // of the metadata answers; nothing was done
	CodeDeadline      Code = "deadline_exceeded"
	CodeDraining      Code = "draining"
	CodeFenced        Code = "fenced"
	CodeGap           Code = "out_of_order"
	CodeIncomplete    Code = "incomplete"
	CodeUnknown       Code = "unknown_outcome"
	CodeCorrupt       Code = "corrupt"
	CodeLocked        Code = "directory_locked"
	CodeNewerFormat   Code = "newer_format"
	CodeReadOnly      Code = "read_only"
	CodeNoSpace       Code = "no_space"
	CodeInternal      Code = "internal"
	CodeUnimplemented Code = "unimplemented"
)

// Exit codes of the CLI.
const (
	ExitOK          = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitNotFound    = 3
	ExitConflict    = 4
	ExitUnavailable = 5
)

var codes = map[Code]struct {
	class Class
	exit  int
}{
	CodeBadName:       {ClassFatal, ExitUsage},
	CodeBadID:         {ClassFatal, ExitUsage},
	CodeBadArgument:   {ClassFatal, ExitUsage},
	CodeBadFrame:      {ClassFatal, ExitFailed},
	CodeBadRecord:     {ClassFatal, ExitFailed},
	CodeBadToken:      {ClassFatal, ExitUsage},
	CodeTooLarge:      {ClassFatal, ExitUsage},
	CodeVersion:       {ClassFatal, ExitFailed},
	CodeNotFound:      {ClassFatal, ExitNotFound},
	CodeExists:        {ClassFatal, ExitConflict},
	CodeConflict:      {ClassFatal, ExitConflict},
	CodeStale:         {ClassFatal, ExitConflict},
	CodeMoved:         {ClassRetryable, ExitUnavailable},
	CodeDisabled:      {ClassFatal, ExitConflict},
	CodeUnsupported:   {ClassFatal, ExitUsage},
	CodeThrottled:     {ClassThrottled, ExitUnavailable},
	CodeUnavailable:   {ClassRetryable, ExitUnavailable},
	CodeNoMajority:    {ClassRetryable, ExitUnavailable},
	CodeDeadline:      {ClassUnknown, ExitUnavailable},
	CodeDraining:      {ClassRetryable, ExitUnavailable},
	CodeFenced:        {ClassRetryable, ExitFailed},
	CodeGap:           {ClassFatal, ExitFailed},
	CodeIncomplete:    {ClassRetryable, ExitUnavailable},
	CodeUnknown:       {ClassUnknown, ExitUnavailable},
	CodeCorrupt:       {ClassFatal, ExitFailed},
	CodeLocked:        {ClassFatal, ExitConflict},
	CodeNewerFormat:   {ClassFatal, ExitFailed},
	CodeReadOnly:      {ClassRetryable, ExitUnavailable},
	CodeNoSpace:       {ClassRetryable, ExitUnavailable},
	CodeInternal:      {ClassRetryable, ExitFailed},
	CodeUnimplemented: {ClassFatal, ExitUsage},
}

// Class is the class of the code; a code this build does not know counts as fatal.
func (c Code) Class() Class { return codes[c].class }

// Known reports whether this build knows the code. One that came from elsewhere may be any text.
func (c Code) Known() bool {
	_, ok := codes[c]
	return ok
}

// Exit is the CLI's exit code for the code.
func (c Code) Exit() int {
	if v, ok := codes[c]; ok {
		return v.exit
	}
	return ExitFailed
}

// Error is a failure from the catalogue. Text says what went wrong and, after a semicolon, what to do.
type Error struct {
	Code       Code
	Text       string
	RetryAfter time.Duration // only with ClassThrottled; 0 = the caller's own back-off
	Err        error         // cause, may be nil
}

func (e *Error) Error() string {
	switch {
	case e.Err == nil:
		return e.Text
	case e.Text == "":
		return e.Err.Error()
	}
	return e.Text + ": " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Is matches another Error of the same code, so that errors.Is(err, core.ErrNotFound) works through wraps.
// CodeNoMajority and CodeNoSpace are also cases of ErrUnavailable.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && (t.Code == e.Code || t.Code == CodeUnavailable && (e.Code == CodeNoMajority || e.Code == CodeNoSpace))
}

// Sentinels for errors.Is.
var (
	ErrNotFound       = &Error{Code: CodeNotFound, Text: "not found"}
	ErrExists         = &Error{Code: CodeExists, Text: "already exists"}
	ErrConflict       = &Error{Code: CodeConflict, Text: "conflict"}
	ErrThrottled      = &Error{Code: CodeThrottled, Text: "throttled"}
	ErrUnavailable    = &Error{Code: CodeUnavailable, Text: "unavailable"}
	ErrNoMajority     = &Error{Code: CodeNoMajority, Text: "no majority of the metadata answers"}
	ErrNoSpace        = &Error{Code: CodeNoSpace, Text: "the disks of the stores are full"}
	ErrUnknownOutcome = &Error{Code: CodeUnknown, Text: "unknown outcome"}
	ErrDraining       = &Error{Code: CodeDraining, Text: "draining"}
	ErrFenced         = &Error{Code: CodeFenced, Text: "fenced"}
	ErrStale          = &Error{Code: CodeStale, Text: "stale"}
	ErrBadToken       = &Error{Code: CodeBadToken, Text: "bad token"}
	ErrCorrupt        = &Error{Code: CodeCorrupt, Text: "corrupt"}
	ErrTooLarge       = &Error{Code: CodeTooLarge, Text: "too large"}
	ErrMoved          = &Error{Code: CodeMoved, Text: "moved"}
	ErrIncomplete     = &Error{Code: CodeIncomplete, Text: "incomplete"}
)

// Errorf makes an Error; %w operands become its causes and stay visible to errors.Is and errors.As.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	if _, several := err.(interface{ Unwrap() []error }); several {
		return &Error{Code: code, Err: err}
	}
	if cause := errors.Unwrap(err); cause != nil {
		return &Error{Code: code, Err: wrapped{err, cause}}
	}
	return &Error{Code: code, Text: err.Error()}
}

// Partly is the error of a call of which a step failed after others were done: err, between what stands and, unless it
// is "", what to do. A code that means that nothing was done becomes CodeUnknown. nil gives nil.
func Partly(err error, stands, todo string) error {
	if err == nil {
		return nil
	}
	code := CodeOf(err)
	if class := code.Class(); class == ClassRetryable || class == ClassThrottled {
		code = CodeUnknown
	}
	if todo != "" {
		todo = "; " + todo
	}
	return Errorf(code, "%s: %w%s", stands, err, todo)
}

// wrapped prints the whole formatted text but unwraps to the cause only.
type wrapped struct {
	text  error
	cause error
}

func (w wrapped) Error() string { return w.text.Error() }
func (w wrapped) Unwrap() error { return w.cause }

// CodeOf is the code of the first Error in err's chain; CodeInternal when there is none, "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeInternal
}
