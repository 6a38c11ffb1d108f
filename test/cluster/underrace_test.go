package cluster

import "testing"

// oneUnderRace skips a case under the race detector, which makes cases ten times as slow, but for the one that stands for
// them there. The others differ from it in numbers and in the moment of a fault, and run the same code.
func oneUnderRace(t *testing.T, one bool) {
	t.Helper()
	if underRace && !one {
		t.Skip("under the race detector one of these cases runs; without it all do")
	}
}
