package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

const (
	// divergentSeeds is how many schedules of each kind TestDivergentSeeds runs, for each fault.
	divergentSeeds = 5
	// controllerSeeds is how many TestControllerSeeds runs, for each number of controllers.
	controllerSeeds = 5
)

// TestDivergentSeeds runs schedules while the replicas of the metadata differ: with reads at One that are old, and with
// writes at One that never arrive at the other replicas.
func TestDivergentSeeds(t *testing.T) {
	for _, fault := range []string{"stale=0.3", "never=0.05"} {
		t.Run(fault, func(t *testing.T) { runOther(t, fault, divergentSeeds) })
	}
}

// TestControllerSeeds runs schedules against clusters with several controllers, of which half of the faults are.
func TestControllerSeeds(t *testing.T) {
	for _, controllers := range []string{"controllers=2", "controllers=3"} {
		t.Run(controllers, func(t *testing.T) { runOther(t, controllers, controllerSeeds) })
	}
}

// runOther runs some of TestSeeds, TestGroupSeeds and TestChains with a flag. The processes are others, since flags are
// of a whole process.
func runOther(t *testing.T, flag string, many int) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^(TestSeeds|TestGroupSeeds|TestChains)$", "-test.timeout=10m", "-test.parallel=2", "-"+flag,
		fmt.Sprintf("-many=%d", many), fmt.Sprintf("-groupseeds=%d", many), fmt.Sprintf("-chainseeds=%d", many))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, clip(out))
	}
}
