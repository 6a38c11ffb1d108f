package metadata_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// TestUnstored_AllRowsUnlessTheErrorSaysIt: what nobody knows to be stored counts as not stored.
func TestUnstored_AllRowsUnlessTheErrorSaysIt(t *testing.T) {
	lost := core.Errorf(core.CodeUnknown, "lost")
	for what, c := range map[string]struct {
		err  error
		want []int
	}{
		"stored":          {nil, nil},
		"nothing is said": {lost, []int{0, 1, 2}},
		"from the first":  {metadata.UnstoredFrom(0, 3, lost), []int{0, 1, 2}},
		"from the second": {metadata.UnstoredFrom(1, 3, lost), []int{1, 2}},
		"of other rows":   {metadata.UnstoredFrom(1, 2, lost), []int{0, 1, 2}},
		"wrapped":         {fmt.Errorf("wrapped: %w", metadata.UnstoredFrom(2, 3, lost)), []int{2}},
	} {
		if got := metadata.Unstored(c.err, 3); !slices.Equal(got, c.want) {
			t.Errorf("%s: the rows %v may not be stored, want %v", what, got, c.want)
		}
		if c.err != nil && core.CodeOf(c.err) != core.CodeUnknown {
			t.Errorf("%s: code %q", what, core.CodeOf(c.err))
		}
	}
}
