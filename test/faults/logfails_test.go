package faults

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/columbamq/columba/test/process"
)

// needStrace skips a test where strace is missing. A machine of continuous integration (CI is set) must have it, or be
// able to install it.
func needStrace(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("strace"); err == nil {
		return
	}
	if os.Getenv("CI") == "" {
		t.Skip("SKIPPED: no strace; install it to have I/O errors of real processes tested")
	}
	if out, err := exec.Command("sh", "-c", "apt-get update && apt-get install -y --no-install-recommends strace").CombinedOutput(); err != nil {
		t.Fatalf("strace cannot be installed: %v\n%s", err, out)
	}
}

// tracer injects an error into the syncs of a process until it is stopped.
type tracer struct {
	cmd *exec.Cmd
	out *process.Buffer
}

func failSyncs(t *testing.T, s *process.Server) *tracer {
	t.Helper()
	x := &tracer{out: new(process.Buffer)}
	x.cmd = exec.Command("strace", "-f", "-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO:when=1", "-p", fmt.Sprint(s.Pid()))
	x.cmd.Stderr = x.out
	if err := x.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.stop)
	process.Eventually(t, "strace is attached: "+x.out.String(), func() bool { return strings.Contains(x.out.String(), "attached") })
	return x
}

func (x *tracer) injected() bool { return strings.Contains(x.out.String(), "INJECTED") }

// stop lets the process go on without it.
func (x *tracer) stop() {
	if x.cmd.ProcessState == nil {
		_ = x.cmd.Process.Signal(syscall.SIGINT)
		_ = x.cmd.Wait()
	}
}

// TestStoresOpenTheirLogsAnew: a sync of the log fails once on each of three stores, and all is well again within ten
// seconds, without a hand.
func TestStoresOpenTheirLogsAnew(t *testing.T) {
	byCommands(t)
	needStrace(t)
	c := process.StartCluster(t, process.Layout{Inputs: 1, Outputs: 1, Stores: 3})
	s := c.Controller
	s.Must("", "create", "queue", "/t/ap")
	s.Must("", "create", "group", "/t/ap", "g", "--start", "earliest")
	s.Must(lines(100), "publish", "/t/ap")
	pids := make([]int, len(c.Stores))
	var tracers []*tracer
	for i, st := range c.Stores {
		pids[i] = st.Pid()
		tracers = append(tracers, failSyncs(t, st))
	}
	publisher := s.Launch(strings.NewReader(lines(100)), func([]byte) {}, "publish", "/t/ap")
	for i, x := range tracers {
		process.Eventually(t, fmt.Sprintf("a sync of store %d fails", i), x.injected)
		x.stop()
	}
	began := time.Now()
	if code := publisher.Wait(); code != 0 {
		t.Errorf("publish while the logs failed: exit code %d: %s", code, publisher.Stderr())
	}
	s.Must(lines(100), "publish", "/t/ap")
	process.EventuallyWithin(t, 10*time.Second, "all stores are ready after a failure of their logs", func() bool {
		for _, st := range c.Stores {
			// strace tells of an error before the store gets it: a store without a failure is ready because its failure is still
			// to come
			if st.Metric("columba_storehost_log_failures_total") < 1 || !st.Ready() || st.Metric("columba_storehost_log_failed") != 0 {
				return false
			}
		}
		return true
	})
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("whole again after %s, want 10 s at most", took)
	}
	for i, st := range c.Stores {
		if st.Pid() != pids[i] {
			t.Errorf("store %d is another process", i)
		}
	}
	if out := s.Must("", "consume", "/t/ap", "g", "--count", "300"); strings.Count(out, "\n") < 300 {
		t.Errorf("consumed %d messages, want the 300 that were acknowledged", strings.Count(out, "\n"))
	}
}
