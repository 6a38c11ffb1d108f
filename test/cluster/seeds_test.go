package cluster

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/columbamq/columba/metadata/faulty"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "run the schedule of this seed alone")
	stepsFlag = flag.Int("steps", 0, "faults of a schedule; 0: 6, and 8 of more than 100 seeds and of cp schedules")
	firstFlag = flag.Uint64("first", 1, "first seed")
	staleFlag = flag.Float64("stale", 0, "chance that a replica of the metadata learns of a write up to 10 s late")
	neverFlag = flag.Float64("never", 0, "chance that a replica of the metadata learns of a write by a read repair alone")
	lostFlag  = flag.Float64("undecided", 0, "chance that a change of the metadata by compare-and-set has no answer, and that only serial reads see it")
	ctlFlag   = flag.Int("controllers", 1, "controllers of the clusters of random schedules; of more than one half of the faults are theirs")
	manyFlag  = flag.Int("many", seeds(100), "seeds to run; those of testdata/seeds are always run")
)

// divergence is how far the replicas of the metadata differ in the run of a seed; nil: not at all.
func divergence(seed uint64) *faulty.Divergence {
	if *staleFlag == 0 && *neverFlag == 0 && *lostFlag == 0 {
		return nil
	}
	return &faulty.Divergence{Seed: seed, Late: *staleFlag, Delay: 10 * time.Second, Never: *neverFlag, Undecided: *lostFlag}
}

// seeds is COLUMBA_SEEDS, or otherwise.
func seeds(otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv("COLUMBA_SEEDS")); err == nil {
		return n
	}
	return otherwise
}

// chunk is how many seeds one process runs: a bubble leaves some memory behind, and one that hangs must not take all
// with it.
const chunk = 100

// TestSeeds runs random schedules of faults against clusters under load, in virtual time. All choices come from the
// seed; what the runtime's scheduler chooses does not, so a seed that has failed may have to be repeated.
//
//	go test ./test/cluster -run TestSeeds -seed=N -steps=K
//	COLUMBA_SEEDS=10000 go test ./test/cluster -run TestSeeds -timeout 6h
//
// With -stale, -never and -undecided the metadata is on three replicas that differ, see faulty.Replicas. With
// -controllers there are several controllers.
func TestSeeds(t *testing.T) {
	series{"TestSeeds", "many", *seedFlag, *manyFlag, func(t *testing.T, seed uint64, steps int) { try(t, draw(seed, steps, *ctlFlag)) }}.test(t)
}

// series is a test of many seeds.
type series struct {
	name string
	flag string // of how many
	seed uint64 // to run alone; 0: many
	many int
	try  func(t *testing.T, seed uint64, steps int)
}

func (s series) test(t *testing.T) {
	switch {
	case s.seed > 0:
		s.try(t, s.seed, steps(6))
	case s.many > chunk:
		s.inChunks(t, steps(8))
	default:
		for i := range s.many {
			s.run(t, *firstFlag+uint64(i), steps(6))
		}
	}
}

// steps is -steps, or otherwise.
func steps(otherwise int) int {
	if *stepsFlag > 0 {
		return *stepsFlag
	}
	return otherwise
}

func (s series) run(t *testing.T, seed uint64, steps int) {
	t.Run(fmt.Sprint(seed), func(t *testing.T) {
		t.Parallel()
		s.try(t, seed, steps)
	})
}

// TestFailedSeeds runs those that have failed before: lines of a seed, its steps and what was wrong.
func TestFailedSeeds(t *testing.T) {
	runListed(t, "testdata/seeds", series{try: func(t *testing.T, seed uint64, steps int) { try(t, draw(seed, steps, 1)) }})
}

// TestFailedGroupSeeds runs those of TestGroupSeeds.
func TestFailedGroupSeeds(t *testing.T) {
	runListed(t, "testdata/groupseeds", series{try: func(t *testing.T, seed uint64, steps int) { tryHabits(t, draw(seed, steps, 1)) }})
}

func runListed(t *testing.T, file string, all series) {
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var seed uint64
		var steps int
		if text, _, _ := strings.Cut(lines.Text(), "#"); strings.TrimSpace(text) == "" {
			continue
		}
		if _, err := fmt.Sscan(lines.Text(), &seed, &steps); err != nil {
			t.Fatalf("%s: %q: %v", file, lines.Text(), err)
		}
		all.run(t, seed, steps)
	}
}

var failedSeed = regexp.MustCompile(`(?m)^\s+--- FAIL: Test\w+/(\d+)`)

// inChunks runs the seeds in processes of their own, as many at once as there are processors.
func (s series) inChunks(t *testing.T, steps int) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for first := *firstFlag; first < *firstFlag+uint64(s.many); first += chunk {
		many := min(chunk, int(*firstFlag+uint64(s.many)-first))
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+s.name+"$", "-test.timeout=20m", "-test.parallel=1",
				fmt.Sprintf("-first=%d", first), fmt.Sprintf("-%s=%d", s.flag, many), fmt.Sprintf("-steps=%d", steps),
				fmt.Sprintf("-controllers=%d", *ctlFlag), fmt.Sprintf("-stale=%g", *staleFlag), fmt.Sprintf("-never=%g", *neverFlag), fmt.Sprintf("-undecided=%g", *lostFlag))
			out, err := cmd.CombinedOutput()
			if err == nil {
				return
			}
			var failed []string
			for _, m := range failedSeed.FindAllSubmatch(out, -1) {
				failed = append(failed, string(m[1]))
			}
			t.Errorf("seeds %d to %d: %v; failed: %s\n%s", first, first+uint64(many)-1, err, strings.Join(failed, " "), clip(out))
		})
	}
	wg.Wait()
}

// clip keeps the ends of a long output: of a process that hangs it is the stacks of everybody.
func clip(out []byte) []byte {
	const end = 32 << 10
	if len(out) <= 2*end {
		return out
	}
	return append(append(out[:end:end], "\n…\n"...), out[len(out)-end:]...)
}
