package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime/pprof"
	"time"

	"github.com/columbamq/columba/bench/machine"
	"github.com/columbamq/columba/bench/measure"
)

// workerCommand makes this binary a worker: one process that does one job and prints its outcome.
const workerCommand = "worker"

var jobs = map[string]func(measure.Job) (measure.Outcome, error){
	"publish": publish, "consume": consume, "latency": oneInFlight, "log": logAlone, "produce": produce, "steady": steady,
	"drain": drain, "hold": hold, "rest": rest, "flow": flow, "timers": fireTimers, "delay": delay, "failing": handleFailing,
}

// longJobs take so much longer than others.
var longJobs = map[string]time.Duration{"timers": timerAhead + timerSpread}

// work does the job that the argument describes.
func work(arg string) error {
	var j measure.Job
	if err := json.Unmarshal([]byte(arg), &j); err != nil {
		return fmt.Errorf("job: %w", err)
	}
	do := jobs[j.Kind]
	if do == nil {
		return fmt.Errorf("no job %q", j.Kind)
	}
	if j.Profile != "" {
		f, err := os.Create(j.Profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	o, err := do(j)
	if err != nil {
		return err
	}
	o.CPU = machine.OwnCPU()
	return json.NewEncoder(os.Stdout).Encode(o)
}
