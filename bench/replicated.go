package main

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/columbamq/columba/bench/measure"
)

// Loads of the replicated sections.
const (
	replicatedProducers = 4
	replicatedInFlight  = 1000
	steadyRate          = 10_000
	manyQueues          = 1000
)

// replicated is one repetition.
type replicated struct {
	one     measure.Outcome // one in flight
	steady  measure.Outcome
	full    measure.Outcome
	cpuFull float64 // µs a message, the servers
	sync    float64 // ms; p50 of a 1 KiB overwriting fdatasync
}

// replicated measures three replicas, fsynced before the acknowledgement.
func (r *rig) replicated() error {
	var all []replicated
	for i := range r.pairs {
		disk, err := syncTimes(filepath.Join(r.dir, fmt.Sprint("sync", i)), r.slice/3)
		if err != nil {
			return err
		}
		m, err := r.replicatedOnce(fmt.Sprint("ours", i))
		if err != nil {
			return err
		}
		m.sync = disk.Quantile(0.5)
		all = append(all, m)
		r.report.say("repetition %d: fdatasync p50 %.3f ms; one in flight p50 %.2f p99 %.2f ms, steady p50 %.2f p99 %.2f ms, full %.0f/s (p50 %.1f ms, %.1f µs of the servers' CPU a message)",
			i+1, m.sync, m.one.P50, m.one.P99, m.steady.P50, m.steady.P99, m.full.PerSecond(), m.full.P50, m.cpuFull)
	}
	of := func(f func(replicated) float64) float64 {
		var v []float64
		for _, m := range all {
			v = append(v, f(m))
		}
		return median(v)
	}
	r.report.info("3 replicas, 4 × 1,000 in flight, 1 KiB", of(func(m replicated) float64 { return m.full.PerSecond() }), "msg/s",
		fmt.Sprintf("%.1f µs of the servers' CPU a message", of(func(m replicated) float64 { return m.cpuFull })))
	r.report.info("one in flight, p50", of(func(m replicated) float64 { return m.one.P50 }), "ms", "")
	r.report.info("steady 10,000/s, p99", of(func(m replicated) float64 { return m.steady.P99 }), "ms", "")
	r.report.atMost("one in flight p50 ÷ fdatasync p50", of(func(m replicated) float64 { return m.one.P50 / m.sync }), 6, "×")
	return nil
}

// replicatedOnce drives a cluster through three loads, the one that leaves most behind last.
func (r *rig) replicatedOnce(name string) (m replicated, err error) {
	c, err := r.cluster(name, false)
	if err != nil {
		return m, err
	}
	defer c.remove()
	if err := c.createQueue(r, queuePath); err != nil {
		return m, err
	}
	run := func(j measure.Job) (measure.Outcome, error) {
		j.Addr, j.Queue = c.controller.addr, queuePath
		return r.worker(j)
	}
	if m.one, err = run(measure.Job{Kind: "latency", Size: 1024, Warm: warm, For: r.slice}); err != nil {
		return m, err
	}
	if m.steady, err = run(measure.Job{Kind: "steady", Size: 1024, Warm: 2 * warm, For: 2 * r.slice, Rate: steadyRate}); err != nil {
		return m, err
	}
	before, err := c.cpu()
	if err != nil {
		return m, err
	}
	m.full, err = run(measure.Job{Kind: "produce", Size: 1024, Warm: 2 * warm, For: 2 * r.slice, Producers: replicatedProducers, InFlight: replicatedInFlight})
	if err != nil {
		return m, err
	}
	after, err := c.cpu()
	m.cpuFull = 1e6 * (after - before) / float64(max(1, m.full.Total))
	return m, err
}

// roleCPU is CPU time by role: in seconds, or in µs a message.
type roleCPU struct{ input, stores, output, controller float64 }

func (c roleCPU) sum() float64 { return c.input + c.stores + c.output + c.controller }

func (c roleCPU) String() string {
	return fmt.Sprintf("(%.1f: %.1f + %.1f + %.1f + %.1f)", c.sum(), c.input, c.stores, c.output, c.controller)
}

// plus returns c and k times d.
func (c roleCPU) plus(k float64, d roleCPU) roleCPU {
	return roleCPU{c.input + k*d.input, c.stores + k*d.stores, c.output + k*d.output, c.controller + k*d.controller}
}

// cpuByRole is what the processes of the cluster have used, in seconds.
func (c *cluster) cpuByRole() (sum roleCPU, err error) {
	add := func(to *float64, s *server) {
		if s != nil && err == nil {
			var v float64
			v, err = s.cpu()
			*to += v
		}
	}
	add(&sum.input, c.input)
	for _, s := range c.stores {
		add(&sum.stores, s)
	}
	add(&sum.output, c.output)
	add(&sum.controller, c.controller)
	return sum, err
}

// many compares what many queues with little traffic cost with what one queue with as much in all costs.
func (r *rig) many() error {
	var ratios, one, many []float64
	for i := range r.pairs {
		a, err := r.manyOnce(fmt.Sprint("one", i), 1)
		if err != nil {
			return err
		}
		b, err := r.manyOnce(fmt.Sprint("many", i), manyQueues)
		if err != nil {
			return err
		}
		one, many, ratios = append(one, a.sum()), append(many, b.sum()), append(ratios, b.sum()/a.sum())
		r.report.say("repetition %d: µs of CPU a message, of the input host, the three stores and the controller: one queue %.1f + %.1f + %.1f, %d queues %.1f + %.1f + %.1f",
			i+1, a.input, a.stores, a.controller, manyQueues, b.input, b.stores, b.controller)
	}
	r.report.info("one queue at 10,000 msg/s", median(one), "µs", "of the servers' CPU, a message")
	r.report.info("1,000 queues at 10 msg/s each", median(many), "µs", "of the servers' CPU, a message")
	r.report.atMost("1,000 queues ÷ one queue, CPU", median(ratios), 1.5, "×")
	return nil
}

// manyOnce is what the roles spend on a message.
func (r *rig) manyOnce(name string, queues int) (m roleCPU, err error) {
	c, err := r.cluster(name, false)
	if err != nil {
		return m, err
	}
	defer c.remove()
	paths := []string{queuePath}
	if queues > 1 {
		paths = paths[:0]
		for i := range queues {
			paths = append(paths, fmt.Sprintf("%s-%d", queuePath, i))
		}
	}
	if err := c.createQueue(r, paths...); err != nil {
		return m, err
	}
	j := measure.Job{Kind: "steady", Addr: c.controller.addr, Queue: queuePath, Queues: queues, Size: 1024, Rate: steadyRate, Warm: warm, For: 3 * time.Second}
	if _, err := r.worker(j); err != nil { // opens the extents
		return m, err
	}
	before, err := c.cpuByRole()
	if err != nil {
		return m, err
	}
	j.For = 3 * r.slice
	o, err := r.worker(j)
	if err != nil {
		return m, err
	}
	after, err := c.cpuByRole()
	return roleCPU{}.plus(1e6/float64(max(1, o.Total)), after.plus(-1, before)), err
}
