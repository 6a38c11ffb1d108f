package convert_test

import (
	"math"
	"testing"

	"github.com/columbamq/columba/api/convert"
	"github.com/columbamq/columba/core"
)

// TestListVersion_CounterAtTheEnd is refused: a controller that raises its counter above it would begin at zero again.
func TestListVersion_CounterAtTheEnd(t *testing.T) {
	v := core.ListVersion{Controller: "c", Run: core.RunID{ID: core.NewID(fuzzNow)}}
	for counter, ok := range map[uint64]bool{1: true, 1 << 60: true, math.MaxInt64: true, 1 << 63: false, math.MaxUint64: false} {
		v.Counter = counter
		got, err := convert.ListVersion(convert.ListVersionToProto(v))
		if (err == nil) != ok || ok && got != v || !ok && core.CodeOf(err) != core.CodeBadArgument {
			t.Errorf("counter %d: %+v, %v", counter, got, err)
		}
	}
}
