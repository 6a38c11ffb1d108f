package faults

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata/pebble"
	"github.com/columbamq/columba/metadata/scale"
	"github.com/columbamq/columba/test/process"
)

const (
	// scaleEnv turns TestScaleOnCassandra on; its value is the number of queues, each with a group and ten extents.
	scaleEnv = "COLUMBA_SCALE"
	// scaleLimit bounds each step of the test.
	scaleLimit = time.Hour
	// scaleCalm bounds how long the controller may work until it is calm. It reads all extents again and again for ten
	// minutes after it has started.
	scaleCalm = 15 * time.Minute
)

// TestScaleOnCassandra measures what many queues and extents cost on Cassandra: the copy of their metadata, killed
// once, and a controller with a frontend on the copy. Its figures depend on the machine. No store has the extents.
//
//	COLUMBA_SCALE=10000 go test ./test/faults -run TestScaleOnCassandra -v -timeout 2h
func TestScaleOnCassandra(t *testing.T) {
	queues, err := strconv.Atoi(os.Getenv(scaleEnv))
	if err != nil {
		t.Skipf("for measurements only; set %s to a number of queues", scaleEnv)
	}
	url := onCassandra(t, "all")
	s := process.StartServer(t)
	s.Stop()
	fillMetadata(t, filepath.Join(s.Data, "metadata"), scale.Size{Queues: queues, Extents: 10, Behind: 2})

	copying := []string{"metadata", "copy", "--data", s.Data, "--to", url}
	began := time.Now()
	c := s.Launch(nil, func([]byte) {}, copying...)
	process.EventuallyWithin(t, scaleLimit, "the copy is under way", func() bool { return strings.Contains(c.Stderr(), "rows copied") || !c.Running() })
	c.Kill()
	t.Logf("copy killed after %s: %s", time.Since(began).Round(time.Millisecond), c.Stderr())
	took, out := finished(t, s, copying...)
	if !strings.Contains(out.stderr, "are copied and the same") {
		t.Fatalf("the copy ended so:\n%s", out.stderr)
	}
	t.Logf("copied and compared in %s after that\n%s%s", took, out.stderr, out.stdout)

	s.With("--roles", "controller,frontend", "--gossip", process.FreeAddr(t), "--metadata", url)
	began = time.Now()
	s.Begin()
	s.AwaitWithin(scaleLimit)
	ready := time.Since(began)
	process.EventuallyWithin(t, scaleLimit, "it answers", func() bool { return s.Run("", "list", "hosts", "--timeout", "30s").Code == 0 })
	t.Logf("ready after %s, answers after %s: %s", ready.Round(time.Millisecond), time.Since(began).Round(time.Millisecond), spentBy(t, s))
	for calm := false; !calm; {
		before := spentBy(t, s)
		pass(35 * time.Second) // it reads every 30 s
		calm = spentBy(t, s).processor-before.processor < 2*time.Second
		if time.Since(began) > scaleCalm {
			break
		}
	}
	first := spentBy(t, s)
	t.Logf("after %s it is calm, or %s are over: %s", time.Since(began).Round(time.Second), scaleCalm, first)
	pass(time.Minute)
	idle := spentBy(t, s)
	t.Logf("a minute without calls: %s of processor; %s", idle.processor-first.processor, idle)
	for range 3 {
		took, out := finished(t, s, "list", "queues", "--timeout", "10m", "-o", "json")
		listed := strings.Count(out.stdout, "\n")
		if t.Logf("list queues: %d in %s", listed, took); listed != queues {
			t.Errorf("%d of %d queues are listed: %s", listed, queues, out.stderr)
		}
	}
	t.Logf("at last: %s", spentBy(t, s))
}

// fillMetadata writes the metadata of a large cluster into the embedded ones of a server that is stopped.
func fillMetadata(t *testing.T, dir string, size scale.Size) {
	t.Helper()
	began := time.Now()
	to, err := pebble.Open(dir, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	run, owner := core.RunID{ID: core.NewID(began)}, core.RunID{ID: core.NewID(began)}
	hosts := scale.Hosts{
		Controller: "controller1", Run: run, Input: "input1", InputRun: core.RunID{ID: core.NewID(began)},
		Owner: func(core.GroupID, core.ExtentID) (core.HostID, core.RunID) { return "output1", owner },
	}
	for _, id := range []core.HostID{"store1", "store2", "store3"} {
		hosts.Stores = append(hosts.Stores, core.Place{Store: id, Disk: core.DiskID{ID: core.NewID(began)}})
	}
	c, err := scale.Write(t.Context(), to, size, hosts, began)
	if err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d queues with %d extents were written in %s", len(c.Queues), len(c.Extents), time.Since(began).Round(time.Millisecond))
}

type output struct{ stdout, stderr string }

// finished runs a command line to its end, however long that takes.
func finished(t *testing.T, s *process.Server, args ...string) (took time.Duration, out output) {
	t.Helper()
	var stdout bytes.Buffer
	began := time.Now()
	c := s.Launch(nil, func(line []byte) { stdout.Write(append(line, '\n')) }, args...)
	process.EventuallyWithin(t, scaleLimit, strings.Join(args[:2], " ")+" ends", func() bool { return !c.Running() })
	took = time.Since(began).Round(time.Millisecond)
	c.Wait()
	return took, output{stdout.String(), c.Stderr()}
}

// spent is what a process has used.
type spent struct {
	processor time.Duration
	resident  string
}

func (u spent) String() string {
	return fmt.Sprintf("%s of processor, %s resident", u.processor, u.resident)
}

func spentBy(t *testing.T, s *process.Server) (u spent) {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // from the third field on
	for _, ticks := range fields[11:13] {
		n, err := strconv.Atoi(ticks)
		if err != nil {
			t.Fatal(err)
		}
		u.processor += time.Duration(n) * 10 * time.Millisecond
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "VmRSS:")
	line, _, _ := strings.Cut(after, "\n")
	u.resident = strings.TrimSpace(line)
	return u
}

// pass lets time go by for a measurement.
func pass(d time.Duration) { <-time.After(d) }
