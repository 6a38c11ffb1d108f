package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"runtime/pprof"
	"slices"
	"syscall"
	"time"
)

// workerCommand makes this binary a worker: one process that does one job and prints its outcome.
const workerCommand = "worker"

// job is what a worker does.
type job struct {
	Kind    string        // publish, consume, latency, log, produce, steady
	Addr    string        // of the server
	Queue   string        //
	Group   string        // consume
	Size    int           // payload of a message, bytes
	Warm    time.Duration // not counted
	For     time.Duration // counted
	Count   int64         // consume: end after this many
	Records int           // log: of a batch
	Depth   int           // log: batches without an answer
	Dir     string        // log: a directory that is not there yet
	Profile string        // file for the worker's CPU profile; empty: none

	Producers int // produce: each with a connection of its own
	InFlight  int // produce: messages of each without an answer, at most
	Rate      int // steady: messages a second, of all queues
	Queues    int // steady: more than one are named Queue-0, Queue-1 …
}

// outcome is what a worker measured.
type outcome struct {
	Messages int64
	Seconds  float64
	Errors   int64
	P50, P99 float64 // ms; of sampled messages
	CPU      float64 // seconds of the whole worker, user and system
	Total    int64   // messages of the whole worker, the warm-up's too
	Gap      float64 // seconds; the longest without an acknowledgement of a sampled message
}

func (o outcome) rate() float64 { return float64(o.Messages) / o.Seconds }

var jobs = map[string]func(job) (outcome, error){
	"publish": publish, "consume": consume, "latency": oneInFlight, "log": logAlone, "produce": produce, "steady": steady,
}

// work does the job that the argument describes.
func work(arg string) error {
	var j job
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
	o.CPU = cpuOf(syscall.RUSAGE_SELF)
	return json.NewEncoder(os.Stdout).Encode(o)
}

// payload is text that does not repeat within a message.
func payload(size int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "%x,", uint32(i)*2654435761)
	}
	return b.Bytes()[:size]
}

// samples are latencies. Not safe for concurrent use.
type samples []time.Duration

// quantile in ms; 0 without samples.
func (s samples) quantile(q float64) float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return float64(sorted[int(q*float64(len(sorted)-1))].Microseconds()) / 1e3
}
