package session

import (
	"math"
	"testing"
)

// TestOutweighs_AnyNumber: the number of hosts that another controller sees comes from a row, and may be any.
func TestOutweighs_AnyNumber(t *testing.T) {
	for _, x := range []struct {
		a, b uint32
		want bool
	}{
		{2, 1, true}, {3, 2, false}, {4, 2, true}, {5, 0, false}, {3, 1 << 31, false}, {3, math.MaxUint32, false},
		{1 << 31, 1 << 30, true}, {math.MaxUint32, 3, true}, {math.MaxUint32, 1 << 31, false},
	} {
		if got := outweighs(x.a, x.b); got != x.want {
			t.Errorf("%d outweighs %d: %v", x.a, x.b, got)
		}
	}
}
