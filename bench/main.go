// Command bench owns the numbers that one machine has to reach: it measures a real server, judges each number against
// its bound and writes the results down.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/columbamq/columba/bench/machine"
	"github.com/columbamq/columba/bench/measure"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == workerCommand {
		exit(work(os.Args[2]))
	}
	exit(run())
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// rig is what the sections share.
type rig struct {
	ctx     context.Context
	columba string // the binary under test
	self    string // this binary, for workers
	dir     string // scratch, on the disk that is measured
	pairs   int    // repetitions; a number is their median
	slice   time.Duration
	queues  int     // of the idle server
	before  string  // the binary of an earlier build, of builds
	backlog int64   // bytes, of drain
	acked   float64 // messages a second, of failing; 0: not measured
	report  *report
}

// sections in the order in which they run.
var sections = []struct {
	name string
	run  func(*rig) error
}{
	{"wire", (*rig).wire},
	{"idle", (*rig).idle},
	{"latency", (*rig).latency},
	{"rates", (*rig).rates},
	{"profiles", (*rig).profiles},
	{"replicated", (*rig).replicated},
	{"many", (*rig).many},
	{"drain", (*rig).drain},
	{"flow", (*rig).flow},
	{"hole", (*rig).hole},
	{"timers", (*rig).timers},
	{"retry-queue", (*rig).retryQueue},
	{"failing", (*rig).failing},
	{"failing-full", (*rig).failingFull},
	{"tenants", (*rig).tenants},
	{"metadata", (*rig).metadata},
	{"builds", (*rig).builds},
}

// suites name sections that are run together; their results go to a file of that name.
var suites = map[string][]string{
	"one-machine": {"wire", "idle", "latency", "rates", "profiles"},
	"replicated":  {"replicated", "many"},
	"consuming":   {"drain", "flow", "hole", "timers", "retry-queue"},
	"failing":     {"failing", "failing-full"},
	"tenants":     {"tenants"},
	"metadata":    {"metadata"},
	"builds":      {"builds"},
}

func run() error {
	columba := flag.String("columba", "bin/columba", "`path` of the binary under test")
	dir := flag.String("dir", "", "scratch `directory` on the disk to be measured (default: the system's for temporary files)")
	out := flag.String("out", "bench/results", "`directory` for the results; empty: print only")
	pairs := flag.Int("pairs", 5, "repetitions of each comparison, of which the median counts; at least 3 for a result that is kept")
	slice := flag.Duration("time", 3*time.Second, "how long each rate is measured")
	queues := flag.Int("queues", 10_000, "queues of the idle server")
	suite := flag.String("suite", "one-machine", "sections that belong together: one-machine, replicated, consuming, failing, tenants, metadata or builds")
	only := flag.String("only", "", "sections of the suite to run (default: all)")
	before := flag.String("before", "", "`path` of the binary of an earlier build to compare with")
	backlog := flag.Int64("backlog", 2<<30, "`bytes` of messages that are stored before consumers drain them")
	flag.Parse()
	names := suites[*suite]
	if names == nil {
		return fmt.Errorf("no suite %q", *suite)
	}
	if *only != "" {
		names = strings.Split(*only, ",")
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	path, err := filepath.Abs(*columba)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp(*dir, "columba-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	r := &rig{
		ctx: ctx, columba: path, self: self, dir: scratch, pairs: max(1, *pairs), slice: *slice, queues: *queues,
		before: *before, backlog: *backlog, report: newReport(os.Stdout, scratch, *suite),
	}
	var failed error
	for _, s := range sections {
		if !slices.Contains(names, s.name) {
			continue
		}
		ended := r.report.begin(s.name)
		if err := s.run(r); err != nil { // what was measured is kept
			failed = fmt.Errorf("%s: %w", s.name, err)
			r.report.say("failed: %v", err)
			break
		}
		ended()
	}
	if *out != "" {
		if err := r.report.save(*out, time.Now()); err != nil {
			return err
		}
	}
	return errors.Join(failed, r.report.verdict())
}

// worker runs a job in a process of its own and returns what it measured.
func (r *rig) worker(j measure.Job) (measure.Outcome, error) {
	var o measure.Outcome
	arg, err := json.Marshal(j)
	if err != nil {
		return o, err
	}
	ctx, cancel := context.WithTimeout(r.ctx, patience+longJobs[j.Kind]+j.Warm+j.For)
	defer cancel()
	text, err := machine.Command(ctx, r.self, workerCommand, string(arg)).Output()
	if err != nil {
		return o, fmt.Errorf("worker %s: %w", arg, machine.WithStderr(err))
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return o, fmt.Errorf("worker %s said %.200q: %w", arg, text, err)
	}
	if o.Errors > 0 {
		return o, fmt.Errorf("worker %s: %d messages failed", arg, o.Errors)
	}
	return o, nil
}

// median of at least one value; of two in the middle the lower.
func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[(len(s)-1)/2]
}
