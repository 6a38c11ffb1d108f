package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/columbamq/columba/bench/measure"
)

// Loads that all rows share.
const (
	consumers  = 8
	prefetch   = 4096 // messages of each consumer
	producers  = 4
	inFlight   = 1000 // messages of each producer without an answer
	steadyRate = 10_000
	rowWarm    = 2 * time.Second // of each row, after the warm-up of the cluster
)

// row is one load of the comparison.
type row struct {
	name  string
	title string
	job   measure.Job
	after string // consume: the row whose messages these are
	full  bool   // in the long run only
}

// rows in the order in which a cluster gets them: the one that leaves most behind comes last, then its messages are
// consumed. Each has a queue of its own.
var rows = []row{
	{
		name: "one", title: "one in flight, 1 KiB",
		job: measure.Job{Kind: kindOne, Size: 1024},
	},
	{
		name: "steady", title: "steady 10,000/s, 1 KiB",
		job: measure.Job{Kind: kindSteady, Size: 1024, Rate: steadyRate},
	},
	{
		name: "flow", title: "steady 10,000/s, 1 KiB, publish to delivery", full: true,
		job: measure.Job{Kind: kindFlow, Size: 1024, Rate: steadyRate, Consumers: consumers, Prefetch: prefetch},
	},
	{
		name: "small", title: "publish 100 B, 4 × 1,000 in flight",
		job: measure.Job{Kind: kindPublish, Size: 100, Producers: producers, InFlight: inFlight},
	},
	{
		name: "single", title: "publish 1 KiB, 1 × 1,000 in flight", full: true,
		job: measure.Job{Kind: kindPublish, Size: 1024, Producers: 1, InFlight: inFlight},
	},
	{
		name: "large", title: "publish 16 KiB, 4 × 100 in flight", full: true,
		job: measure.Job{Kind: kindPublish, Size: 16 << 10, Producers: producers, InFlight: inFlight / 10},
	},
	{
		name: "publish", title: "publish 1 KiB, 4 × 1,000 in flight",
		job: measure.Job{Kind: kindPublish, Size: 1024, Producers: producers, InFlight: inFlight},
	},
	{
		name: "consume", title: "consume 1 KiB, 8 consumers, one ack each", after: "publish",
		job: measure.Job{Kind: kindConsume, Consumers: consumers, Prefetch: prefetch},
	},
}

// figure is a number that a row gives.
type figure struct {
	row, name, unit string
	of              func(measure.Outcome) float64
	higher          bool // is better
}

var figures = []figure{
	{"publish", "publish 1 KiB, 4 × 1,000", "msg/s", measure.Outcome.PerSecond, true},
	{"small", "publish 100 B, 4 × 1,000", "msg/s", measure.Outcome.PerSecond, true},
	{"single", "publish 1 KiB, 1 × 1,000", "msg/s", measure.Outcome.PerSecond, true},
	{"large", "publish 16 KiB, 4 × 100", "msg/s", measure.Outcome.PerSecond, true},
	{"consume", "consume 1 KiB, one ack each", "msg/s", measure.Outcome.PerSecond, true},
	{"one", "one in flight, 1 KiB, p50", "ms", func(o measure.Outcome) float64 { return o.P50 }, false},
	{"steady", "steady 10,000/s, p50", "ms", func(o measure.Outcome) float64 { return o.P50 }, false},
	{"steady", "steady 10,000/s, p99", "ms", func(o measure.Outcome) float64 { return o.P99 }, false},
	{"flow", "steady 10,000/s, to delivery, p50", "ms", func(o measure.Outcome) float64 { return o.Deliver50 }, false},
	{"flow", "steady 10,000/s, to delivery, p99", "ms", func(o measure.Outcome) float64 { return o.Deliver99 }, false},
}

// plan is what a run does. Two runs with equal plans can share what they measured.
type plan struct {
	Brokers []string
	Rows    []string
	Rounds  int
	For     time.Duration // of each row
	Warm    time.Duration // of each cluster, before its rows
	JVMWarm time.Duration // the same of brokers on a JVM
	Heap    string
	Dir     string // empty: where temporary files are
}

// standard is the plan of `make bench-peers`, or of FULL=1.
func standard(full bool) plan {
	p := plan{Rounds: 3, For: 10 * time.Second, Warm: 10 * time.Second, JVMWarm: 2 * time.Minute, Heap: "1G"}
	if full {
		p.Rounds, p.For = 5, 30*time.Second
	}
	for _, b := range brokers {
		p.Brokers = append(p.Brokers, b.name)
	}
	for _, r := range rows {
		if full || !r.full {
			p.Rows = append(p.Rows, r.name)
		}
	}
	return p
}

// check reports names that do not exist.
func (p plan) check() error {
	for _, name := range p.Brokers {
		if _, err := brokerOf(name); err != nil {
			return err
		}
	}
	for _, name := range p.Rows {
		if !slices.ContainsFunc(rows, func(r row) bool { return r.name == name }) {
			return fmt.Errorf("no row %q", name)
		}
	}
	for _, r := range p.rows() {
		if r.after != "" && !slices.Contains(p.Rows, r.after) {
			return fmt.Errorf("row %s is about the messages of row %s", r.name, r.after)
		}
	}
	return nil
}

// rows of the plan, in the order in which they are run.
func (p plan) rows() (out []row) {
	for _, r := range rows {
		if slices.Contains(p.Rows, r.name) {
			out = append(out, r)
		}
	}
	return out
}

// turn is one cluster of one broker.
type turn struct {
	Round  int
	Broker string
}

// turns are all of the plan. The brokers take turns, and each round begins with another one.
func (p plan) turns() (out []turn) {
	for round := range p.Rounds {
		for i := range p.Brokers {
			out = append(out, turn{round, p.Brokers[(i+round)%len(p.Brokers)]})
		}
	}
	return out
}

// lasts is how long the turn takes, about: a cluster starts and stops, too.
func (p plan) lasts(t turn) time.Duration {
	const start, jvmStart, disk = 8 * time.Second, 25 * time.Second, 2 * diskTime
	each := time.Duration(len(p.Rows)) * (p.For + rowWarm)
	if b, err := brokerOf(t.Broker); err == nil && b.slow {
		return jvmStart + disk + p.JVMWarm + each
	}
	return start + disk + p.Warm + each
}
