// Package underrace lets a test do less under the race detector, which makes code of this project about eight times as
// slow. `make test` runs each test whole without the detector, `make race` runs the same tests with it.
package underrace

import "testing"

// One skips a case under the race detector, but for the one that stands for them there. The others differ from it in
// numbers and in the moment of a fault, and run the same code.
func One(t *testing.T, one bool) {
	t.Helper()
	if On && !one {
		t.Skip("under the race detector one of these cases runs; without it all do")
	}
}

// Of is few under the race detector, otherwise many: rounds, seeds, or how long to wait between two looks.
func Of[T any](few, many T) T {
	if On {
		return few
	}
	return many
}
