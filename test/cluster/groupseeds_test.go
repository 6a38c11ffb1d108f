package cluster

import (
	"flag"
	"testing"
)

var (
	groupSeed  = flag.Uint64("groupseed", 0, "run the schedule of this seed alone against groups with habits")
	groupSeeds = flag.Int("groupseeds", seeds(200)/10, "seeds to run against groups with habits")
)

// TestGroupSeeds runs random schedules of faults against groups that use what groups are promised: messages for later,
// long waits, dead letters and what becomes of them, delivery at most once, seeks, changed settings. The seed chooses
// among them.
//
//	go test ./test/cluster -run TestGroupSeeds -groupseed=N -steps=K
//	go test ./test/cluster -run TestGroupSeeds -groupseeds=10000 -timeout 6h
func TestGroupSeeds(t *testing.T) {
	series{"TestGroupSeeds", "groupseeds", *groupSeed, *groupSeeds, func(t *testing.T, seed uint64, steps int) {
		tryHabits(t, draw(seed, steps, *ctlFlag))
	}}.test(t)
}

func tryHabits(t *testing.T, s *schedule) {
	s.single, s.flag = false, "groupseed"
	tryLoad(t, s, newHabits(s))
}
