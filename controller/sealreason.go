package controller

import (
	"slices"
	"strings"

	"github.com/columbamq/columba/core"
)

// maxReason is how many bytes are kept of the reason of a seal, which comes with a request.
const maxReason = 128

// clipReason cuts a reason, at the end of a character.
func clipReason(reason string) string {
	return strings.ToValidUTF8(reason[:min(len(reason), maxReason)], "")
}

// otherReason is the label of the reasons that this version does not know: each label is a number that is kept for
// ever.
const otherReason = "other"

// sealReasons are the reasons with a label of their own, beside failures with a code.
var sealReasons = []string{
	"rolled", "idle", "drain", "status", "operator", "staged", "queue deleted", "merged", "purged", "chain moves on",
	"input host gone", "resumed", "a store is gone", "replica damaged", "fenced", "a clock is wrong", "never opened", "registered again",
}

// reasonLabel is the label of a reason in the metrics.
func reasonLabel(reason string) string {
	code, failure := strings.CutPrefix(reason, "failure: ")
	if slices.Contains(sealReasons, reason) || failure && core.Code(code).Known() {
		return reason
	}
	return otherReason
}
