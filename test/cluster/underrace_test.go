package cluster

import "testing"

// oneUnderRace skips a case under the race detector, which makes cases of thousands of messages ten times as slow, but
// for the one that stands for them there.
func oneUnderRace(t *testing.T, one bool) {
	t.Helper()
	if underRace && !one {
		t.Skip("under the race detector one of these cases runs; without it all do")
	}
}
