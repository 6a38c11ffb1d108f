package extentlog

import (
	"flag"
	"os"
	"testing"

	"github.com/columbamq/columba/internal/underrace"
)

// TestMain draws fewer histories under the race detector, which makes them ten times as slow: Pebble then checks
// itself, too.
func TestMain(m *testing.M) {
	if underrace.On {
		for name, n := range map[string]string{"rapid.checks": "20", "storms": "5"} {
			if err := flag.Set(name, n); err != nil {
				panic(err)
			}
		}
	}
	os.Exit(m.Run())
}

// oneAtATime skips, under the race detector, a long test in which one goroutine makes one call after the other.
func oneAtATime(t *testing.T) {
	t.Helper()
	if underrace.On {
		t.Skip("runs without the race detector")
	}
}
