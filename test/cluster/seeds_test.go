package cluster

import (
	"flag"
	"fmt"
	"testing"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "run the schedule of this seed alone")
	stepsFlag = flag.Int("steps", 8, "faults of a schedule")
	firstFlag = flag.Uint64("first", 1, "first seed")
	manyFlag  = flag.Int("many", 100, "seeds to run")
)

// TestSeeds runs random schedules of faults against clusters under load.
//
//	go test ./test/cluster -run Seeds -seed=N -steps=K
func TestSeeds(t *testing.T) {
	if *seedFlag > 0 {
		try(t, draw(*seedFlag, *stepsFlag))
		return
	}
	for i := range *manyFlag {
		seed := *firstFlag + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			try(t, draw(seed, *stepsFlag))
		})
	}
}
