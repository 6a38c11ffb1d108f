package dispatch

import (
	"flag"
	"os"
	"testing"
)

// TestMain draws fewer cases under the race detector, which makes them ten times as slow: nothing here has a goroutine.
// `make test` runs the package without it, too, with all cases.
func TestMain(m *testing.M) {
	if underRace {
		if err := flag.Set("rapid.checks", "5"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
