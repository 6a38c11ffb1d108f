package core

import (
	"slices"
	"strings"
	"time"
)

// Bounds of a selection.
const (
	MaxSelectedIDs     = 1000
	MaxSelectedReasons = 100
	maxSelectedReason  = 1024
)

// Selection is some of a group's dead letters: those that fit everything that is set. The zero Selection is all of
// them.
type Selection struct {
	IDs         []MessageID `json:"ids,omitempty"`
	DeadBefore  time.Time   `json:"dead_before,omitzero"` // dead letters since before then
	DeadAfter   time.Time   `json:"dead_after,omitzero"`  // since then or later
	Reasons     []string    `json:"reasons,omitempty"`    // one of them is the reason, or a part of the error
	MinAttempts int         `json:"min_attempts,omitzero"`
	MaxAttempts int         `json:"max_attempts,omitzero"` // 0: any
}

// Letter has the attributes of a dead letter that a selection compares.
type Letter struct {
	ID       MessageID
	Since    int64 // unix µs
	Attempts int
	Reason   []byte
	Error    []byte
}

// IsAll reports whether the selection has no condition.
func (s Selection) IsAll() bool {
	return len(s.IDs)+len(s.Reasons)+s.MinAttempts+s.MaxAttempts == 0 && s.DeadBefore.IsZero() && s.DeadAfter.IsZero()
}

// Matches reports whether a dead letter meets every condition.
func (s *Selection) Matches(l Letter) bool {
	switch {
	case len(s.IDs) > 0 && !slices.Contains(s.IDs, l.ID):
	case !s.DeadBefore.IsZero() && l.Since >= s.DeadBefore.UnixMicro():
	case !s.DeadAfter.IsZero() && l.Since < s.DeadAfter.UnixMicro():
	case l.Attempts < s.MinAttempts, s.MaxAttempts > 0 && l.Attempts > s.MaxAttempts:
	case len(s.Reasons) > 0 && !slices.ContainsFunc(s.Reasons, func(r string) bool { return r == string(l.Reason) || strings.Contains(string(l.Error), r) }):
	default:
		return true
	}
	return false
}

// Validate returns CodeBadArgument for a selection beyond its bounds, or with a condition that nothing can match.
func (s Selection) Validate() error {
	switch {
	case len(s.IDs) > MaxSelectedIDs:
		return Errorf(CodeBadArgument, "%d ids are selected; at most %d are possible at once", len(s.IDs), MaxSelectedIDs)
	case slices.ContainsFunc(s.IDs, MessageID.IsZero):
		return Errorf(CodeBadID, "an id of zeros is no message's")
	case len(s.Reasons) > MaxSelectedReasons:
		return Errorf(CodeBadArgument, "%d reasons are selected; at most %d are possible at once", len(s.Reasons), MaxSelectedReasons)
	case slices.ContainsFunc(s.Reasons, func(r string) bool { return r == "" || len(r) > maxSelectedReason }):
		return Errorf(CodeBadArgument, "a reason has 1 … %d bytes", maxSelectedReason)
	case s.MinAttempts < 0 || s.MaxAttempts < 0:
		return Errorf(CodeBadArgument, "attempts cannot be below zero")
	case s.MaxAttempts > 0 && s.MinAttempts > s.MaxAttempts:
		return Errorf(CodeBadArgument, "no dead letter has at least %d and at most %d attempts", s.MinAttempts, s.MaxAttempts)
	case !s.DeadBefore.IsZero() && !s.DeadAfter.Before(s.DeadBefore):
		return Errorf(CodeBadArgument, "no dead letter is older than %s and newer than %s", s.DeadBefore.Format(time.RFC3339), s.DeadAfter.Format(time.RFC3339))
	}
	return nil
}
