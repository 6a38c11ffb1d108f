package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// divergentSeeds is how many schedules of each kind TestDivergentSeeds runs.
const divergentSeeds = 5

// TestDivergentSeeds runs some of TestSeeds, TestGroupSeeds and TestChains while the replicas of the metadata differ: with
// reads at One that are old, and with writes at One that never arrive at the other replicas. The processes are others, since
// flags are of a whole process.
func TestDivergentSeeds(t *testing.T) {
	for _, fault := range []string{"stale=0.3", "never=0.05"} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^(TestSeeds|TestGroupSeeds|TestChains)$", "-test.timeout=10m", "-test.parallel=2", "-"+fault,
				fmt.Sprintf("-many=%d", divergentSeeds), fmt.Sprintf("-groupseeds=%d", divergentSeeds), fmt.Sprintf("-chainseeds=%d", divergentSeeds))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, clip(out))
			}
		})
	}
}
