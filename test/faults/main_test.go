// Package faults tests real servers and clusters that are killed, stopped and cut off under load: what was acknowledged
// is never lost.
package faults

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"testing"

	"github.com/columbamq/columba/internal/underrace"
	"github.com/columbamq/columba/test/process"
)

// longEnv turns the long tests on; its value is how long one server is killed at random.
const longEnv = "COLUMBA_FAULTS"

func TestMain(m *testing.M) {
	code := process.Main(withNodes{m})
	if err := printTable(); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		code = 1
	}
	os.Exit(code)
}

// withNodes ends the Cassandra nodes that tests started.
type withNodes struct{ *testing.M }

func (m withNodes) Run() int { return nodes.Main(m.M) }

// long skips a test that is for `make faults` only.
func long(t *testing.T) {
	t.Helper()
	if os.Getenv(longEnv) == "" {
		t.Skip("long; run `make faults`, or set " + longEnv)
	}
}

// byCommands skips, under the race detector, a test whose clients are commands. The detector sees the process of the
// test, which has nothing of Columba in it then; without the detector the test runs.
func byCommands(t *testing.T) {
	t.Helper()
	if underrace.On {
		t.Skip("servers and clients are processes without the race detector")
	}
}

// waits lets a test that mostly waits, for locks, alarms or open outcomes, run beside others of its kind. `make faults`
// puts more load on it.
func waits(t *testing.T) {
	t.Helper()
	if os.Getenv(longEnv) == "" {
		t.Parallel()
	}
}

// scaled is n, or the part of it that COLUMBA_FAULTS_SCALE asks for to try things out; at least 1.
func scaled(t *testing.T, n int) int {
	t.Helper()
	s := os.Getenv("COLUMBA_FAULTS_SCALE")
	if s == "" {
		return n
	}
	part, err := strconv.ParseFloat(s, 64)
	if err != nil || part <= 0 || part > 1 {
		t.Fatalf("COLUMBA_FAULTS_SCALE=%q is not in (0, 1]", s)
	}
	return max(1, int(math.Ceil(float64(n)*part)))
}
