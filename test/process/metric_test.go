package process

import (
	"math"
	"testing"
)

func TestHistogram_Median(t *testing.T) {
	before := Histogram{1: 5, 2: 5, 4: 5, math.Inf(1): 5}
	for _, c := range []struct {
		h    Histogram
		want float64
	}{
		{before.Since(before), 0},
		{Histogram{1: 5, 2: 9, 4: 9, math.Inf(1): 9}.Since(before), 1.5},
		{Histogram{1: 6, 2: 6, 4: 9, math.Inf(1): 9}.Since(before), 2 + 2.0/3},
	} {
		if got := c.h.Median(); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%v: %v, want %v", c.h, got, c.want)
		}
	}
}
