package main

import (
	"fmt"

	"github.com/columbamq/columba/bench/measure"
)

// Loads of the consuming sections.
const (
	drainConsumers = 8
	drainPrefetch  = 4096 // of each: NATS asks its servers for as many at a time
	messageSize    = 1024 // bytes
)

// drained is one repetition of both sides, each on new directories, one after the other: messages per second, and µs of the servers' CPU
// a message consumed.
type drained struct {
	publish, consume, cpu float64
	natsConsume, natsCPU  float64
}

// drain fills a queue with three replicas, then has the consumers of one group empty it, each message acknowledged by itself; the same with
// NATS JetStream and explicit acknowledgements, for a smaller backlog where it is slower.
func (r *rig) drain() error {
	if r.peers == "" {
		return fmt.Errorf("name the directory of the peers' programs with -peers; make bench-consuming builds them")
	}
	var all []drained
	for i := range r.pairs {
		m, err := r.drainOurs(fmt.Sprint("drain", i))
		if err != nil {
			return err
		}
		if m.natsConsume, m.natsCPU, err = r.drainNATS(fmt.Sprint("drainnats", i)); err != nil {
			return err
		}
		all = append(all, m)
		r.report.say("repetition %d: publish %.0f/s, consume %.0f/s (%.1f µs of the servers' CPU a message); NATS: consume %.0f/s (%.1f µs)",
			i+1, m.publish, m.consume, m.cpu, m.natsConsume, m.natsCPU)
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
	r.report.info("NATS R3, explicit acks, the same", of(func(m drained) float64 { return m.natsConsume }), "msg/s",
		fmt.Sprintf("%.1f µs of the servers' CPU a message", of(func(m drained) float64 { return m.natsCPU })))
	r.report.atLeast("consume ÷ publish, 3 replicas", of(func(m drained) float64 { return m.consume / m.publish }), 1, "×")
	r.report.atLeast("consume ÷ NATS with explicit acks", of(func(m drained) float64 { return m.consume / m.natsConsume }), 4, "×")
	return nil
}

func (r *rig) drainOurs(name string) (m drained, err error) {
	c, err := r.cluster(name, true)
	if err != nil {
		return m, err
	}
	defer c.remove()
	if err := c.createQueue(r, queuePath); err != nil {
		return m, err
	}
	if err := r.createGroup(c.controller); err != nil {
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
	m.consume, m.cpu = o.PerSecond(), 1e6*(after-before)/float64(max(1, o.Total))
	return m, r.awaitAcks(c.output, float64(stored))
}

func (r *rig) drainNATS(name string) (perSecond, cpu float64, err error) {
	n, err := r.nats(name)
	if err != nil {
		return 0, 0, err
	}
	defer n.remove()
	stored, err := n.run(r.ctx, measure.Job{Kind: "produce", Size: messageSize, Warm: warm, For: 4 * r.slice, Producers: replicatedProducers, InFlight: replicatedInFlight})
	if err != nil {
		return 0, 0, err
	}
	before, err := n.cpu()
	if err != nil {
		return 0, 0, err
	}
	o, err := n.run(r.ctx, measure.Job{Kind: "drain", Group: groupName, Count: stored.Total, Consumers: drainConsumers, Prefetch: drainPrefetch})
	if err != nil {
		return 0, 0, err
	}
	after, err := n.cpu()
	return o.PerSecond(), 1e6 * (after - before) / float64(max(1, o.Total)), err
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
	if err := r.createGroup(c.controller); err != nil {
		return o, err
	}
	return r.worker(measure.Job{
		Kind: "flow", Addr: c.controller.addr, Queue: queuePath, Group: groupName, Size: messageSize, Warm: 4 * warm, For: 3 * r.slice,
		Rate: steadyRate, Consumers: drainConsumers, Prefetch: drainPrefetch,
	})
}
