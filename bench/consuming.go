package main

import (
	"fmt"
	"time"

	"github.com/columbamq/columba/bench/measure"
)

// Loads of the consuming sections.
const (
	drainConsumers = 8
	drainPrefetch  = 4096 // of each
	messageSize    = 1024 // bytes
)

// drained is one repetition: messages per second, and µs of the servers' and of the client's CPU a message consumed.
type drained struct{ publish, consume, cpu, client float64 }

// drain fills a queue with three replicas, then has the consumers of one group empty it, each message acknowledged by
// itself.
func (r *rig) drain() error {
	var all []drained
	for i := range r.pairs {
		m, err := r.drainOnce(fmt.Sprint("drain", i))
		if err != nil {
			return err
		}
		all = append(all, m)
		r.report.say("repetition %d: publish %.0f/s, consume %.0f/s (%.1f µs of the servers' CPU a message, %.1f µs of the client's)",
			i+1, m.publish, m.consume, m.cpu, m.client)
	}
	of := func(f func(drained) float64) float64 {
		var v []float64
		for _, m := range all {
			v = append(v, f(m))
		}
		return median(v)
	}
	r.report.info("a backlog consumed, 1 KiB, one ack each", of(func(m drained) float64 { return m.consume }), "msg/s",
		fmt.Sprintf("%d MiB, %d consumers of a group; %.1f µs of the servers' CPU a message", r.backlog>>20, drainConsumers, of(func(m drained) float64 { return m.cpu })))
	r.report.info("published to the same cluster", of(func(m drained) float64 { return m.publish }), "msg/s", "")
	r.report.atLeast("consume ÷ publish, 3 replicas", of(func(m drained) float64 { return m.consume / m.publish }), 1, "×")
	return nil
}

func (r *rig) drainOnce(name string) (m drained, err error) {
	c, err := r.cluster(name, true)
	if err != nil {
		return m, err
	}
	defer c.remove()
	if err := c.createQueue(r, queuePath); err != nil {
		return m, err
	}
	if err := r.createGroup(c.controller, defaultLock); err != nil {
		return m, err
	}
	run := func(j measure.Job) (measure.Outcome, error) {
		j.Addr, j.Queue, j.Group = c.controller.addr, queuePath, groupName
		return r.worker(j)
	}
	stored := int64(0)
	var rates []float64
	for stored < r.backlog/messageSize {
		o, err := run(measure.Job{Kind: "produce", Size: messageSize, Warm: warm, For: r.slice, Producers: replicatedProducers, InFlight: replicatedInFlight})
		if err != nil {
			return m, err
		}
		stored += o.Total
		rates = append(rates, o.PerSecond())
	}
	m.publish = median(rates)
	before, err := c.cpu()
	if err != nil {
		return m, err
	}
	o, err := run(measure.Job{Kind: "drain", Count: stored, Consumers: drainConsumers, Prefetch: drainPrefetch})
	if err != nil {
		return m, err
	}
	after, err := c.cpu()
	if err != nil {
		return m, err
	}
	m.consume, m.cpu, m.client = o.PerSecond(), 1e6*(after-before)/float64(max(1, o.Total)), 1e6*o.CPU/float64(max(1, o.Total))
	return m, r.awaitAcks(c.output, float64(stored))
}

// flow compares how long a message takes to a consumer with how long it takes to its acknowledgement, at a steady rate.
func (r *rig) flow() error {
	var ratios, deliver, publish []float64
	for i := range r.pairs {
		o, err := r.flowOnce(fmt.Sprint("flow", i))
		if err != nil {
			return err
		}
		deliver, publish, ratios = append(deliver, o.Deliver99), append(publish, o.P99), append(ratios, o.Deliver99/o.P99)
		r.report.say("repetition %d: acknowledged p50 %.2f p99 %.2f ms, delivered p50 %.2f p99 %.2f ms", i+1, o.P50, o.P99, o.Deliver50, o.Deliver99)
	}
	r.report.info("publish → deliver at 10,000/s, p99", median(deliver), "ms", fmt.Sprintf("publish → ack p99 %.2f ms", median(publish)))
	r.report.atMost("publish → deliver p99 ÷ publish → ack p99", median(ratios), 2, "×")
	return nil
}

func (r *rig) flowOnce(name string) (o measure.Outcome, err error) {
	c, err := r.cluster(name, true)
	if err != nil {
		return o, err
	}
	defer c.remove()
	if err := c.createQueue(r, queuePath); err != nil {
		return o, err
	}
	if err := r.createGroup(c.controller, defaultLock); err != nil {
		return o, err
	}
	return r.flowAlong(c, messageSize, 3*r.slice)
}

// flowAlong publishes at the steady rate while consumers take.
func (r *rig) flowAlong(c *cluster, size int, lasts time.Duration) (measure.Outcome, error) {
	return r.worker(measure.Job{
		Kind: "flow", Addr: c.controller.addr, Queue: queuePath, Group: groupName, Size: size, Warm: 4 * warm, For: lasts,
		Rate: steadyRate, Consumers: drainConsumers, Prefetch: drainPrefetch,
	})
}

const (
	// holeMessages are acknowledged beyond the one that is not.
	holeMessages = 1_000_000
	// holeLock is how long what consumers held when the output host died stays theirs.
	holeLock = 3 * time.Second
)

// hole has consumers acknowledge a million messages but the first, kills the output host, and counts what its successor
// delivers again.
func (r *rig) hole() error {
	var ratios, again, rates []float64
	for i := range min(r.pairs, 3) {
		redelivered, acks, err := r.holeOnce(fmt.Sprint("hole", i))
		if err != nil {
			return err
		}
		again, rates, ratios = append(again, redelivered), append(rates, acks), append(ratios, redelivered/(acks+drainConsumers*drainPrefetch+1))
		r.report.say("repetition %d: %.0f acknowledged a second, %.0f delivered again", i+1, acks, redelivered)
	}
	r.report.info("delivered again beyond one message that is never acknowledged", median(again), "msg",
		fmt.Sprintf("output host killed right after %d acks, %.0f of them a second", holeMessages, median(rates)))
	r.report.atMost("delivered again ÷ (a second of acks + prefetch + 1)", median(ratios), 1, "×")
	return nil
}

func (r *rig) holeOnce(name string) (redelivered, acksPerSecond float64, err error) {
	c, err := r.cluster(name, true)
	if err != nil {
		return 0, 0, err
	}
	defer c.remove()
	if err := c.createQueue(r, queuePath); err != nil {
		return 0, 0, err
	}
	if err := r.createGroup(c.controller, holeLock); err != nil {
		return 0, 0, err
	}
	run := func(j measure.Job) (measure.Outcome, error) {
		j.Addr, j.Queue, j.Group, j.Prefetch = c.controller.addr, queuePath, groupName, drainPrefetch
		return r.worker(j)
	}
	stored := int64(0)
	for stored <= holeMessages {
		o, err := run(measure.Job{Kind: "produce", Size: 100, For: r.slice, Producers: replicatedProducers, InFlight: replicatedInFlight})
		if err != nil {
			return 0, 0, err
		}
		stored += o.Total
	}
	o, err := run(measure.Job{Kind: "hold", Count: holeMessages, Consumers: drainConsumers})
	if err != nil {
		return 0, 0, err
	}
	c.output.kill()
	if _, err := c.output.start(r.ctx); err != nil {
		return 0, 0, err
	}
	left, err := run(measure.Job{Kind: "rest", For: 5 * r.slice})
	if err != nil {
		return 0, 0, err
	}
	fresh := stored - 1 - o.Messages // nobody had them yet
	if left.Messages < fresh {
		return 0, 0, fmt.Errorf("%d messages were left, %d came", fresh, left.Messages)
	}
	return float64(left.Messages - fresh), o.PerSecond(), nil
}
