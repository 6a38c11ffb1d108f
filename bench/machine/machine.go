// Package machine owns what benchmarks know of the machine and of the processes that they run on it.
package machine

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// Describe is what the numbers depend on, in lines.
func Describe() []string {
	lines := []string{fmt.Sprintf("%s, %s/%s, %d CPUs", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, rest, ok := strings.Cut(string(text), "model name"); ok {
			model, _, _ := strings.Cut(rest, "\n")
			lines = append(lines, strings.Trim(model, "\t :"))
		}
	}
	if out, err := exec.Command("git", "describe", "--always", "--dirty").Output(); err == nil {
		lines = append(lines, "commit "+strings.TrimSpace(string(out)))
	}
	return lines
}

// Load is the load average.
func Load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}

// Times are CPU times in seconds: of the machine, and of this process with the children it has waited for.
type Times struct{ total, busy, own float64 }

// Now reads them.
func Now() Times {
	var c Times
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		c.own += usage(who)
	}
	text, _ := os.ReadFile("/proc/stat")
	first, _, _ := strings.Cut(string(text), "\n")
	for i, f := range strings.Fields(first) {
		v, err := strconv.ParseFloat(f, 64)
		if err != nil || i > 8 { // guest time is in user time
			continue
		}
		c.total += v / ticks
		if i != 4 && i != 5 { // idle, iowait
			c.busy += v / ticks
		}
	}
	return c
}

// Others is the percentage of the machine's CPU time since then that other processes took.
func (t Times) Others(then Times) float64 {
	if all := t.total - then.total; all > 0 {
		return max(0, 100*(t.busy-then.busy-(t.own-then.own))/all)
	}
	return 0
}
