package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/columbamq/columba/bench/measure"
	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// Loads of the section.
const (
	parkedCount = 1_000_000
	parkedSize  = 100 // bytes
	parkedFor   = time.Hour
	// freshRound is how many fresh messages are drained at once: for seconds, as connections take their time to begin and to end.
	freshRound = 512 << 10
	// freshRounds are measured, and one more goes before all: until stores write tables they read from memory.
	freshRounds = 2
)

// parked compares how fast fresh messages go through a group that has a million others parked with how fast they go through one that was done with the
// same million: stores that hold more are slower to read, whatever became of it.
func (r *rig) parked() error {
	var ratios, cheaper, plain, beside, parking, memory []float64
	for i := range min(r.pairs, 3) {
		p, err := r.freshAfter(fmt.Sprint("acked", i), r.ackAll)
		if err != nil {
			return err
		}
		m, err := r.freshAfter(fmt.Sprint("parked", i), r.parkAll)
		if err != nil {
			return err
		}
		plain, beside, parking, memory = append(plain, p.fresh.rate), append(beside, m.fresh.rate), append(parking, m.before.rate), append(memory, m.memory-p.memory)
		ratios, cheaper = append(ratios, m.fresh.rate/p.fresh.rate), append(cheaper, p.fresh.cpu/m.fresh.cpu)
		r.report.say("repetition %d: %.0f fresh messages a second (%.2f µs of all processes' CPU each), %.0f beside a million parked ones (%.2f µs); parked at %.0f/s (%.1f µs); output host %+.0f MiB",
			i+1, p.fresh.rate, p.fresh.cpu, m.fresh.rate, m.fresh.cpu, m.before.rate, m.before.cpu, m.memory-p.memory)
	}
	r.report.info("fresh messages consumed, 1 KiB, after a million acked ones", median(plain), "msg/s", fmt.Sprintf("beside a million parked ones %.0f/s", median(beside)))
	r.report.info("parked", median(parking), "msg/s", fmt.Sprintf("%d messages of %d bytes, for %s; output host %+.0f MiB", parkedCount, parkedSize, parkedFor, median(memory)))
	r.report.info("CPU time a fresh message, after acked ÷ beside parked ones", median(cheaper), "×", "what a busy machine leaves of the comparison")
	r.report.atLeast("fresh beside a million parked ÷ fresh", median(ratios), 0.9, "×")
	return nil
}

// afterTimes are of one cluster: what became of the million, and the fresh ones after that.
type afterTimes struct {
	before, fresh freshTimes
	memory        float64 // MiB of the output host
}

// freshTimes are messages per second, and µs of all processes' CPU a message.
type freshTimes struct{ rate, cpu float64 }

// freshAfter has a million messages stored and settled in one of two ways, in a cluster of its own, and then fresh ones drained.
func (r *rig) freshAfter(name string, settle func(c *cluster, stored int64) (measure.Outcome, error)) (m afterTimes, err error) {
	c, err := r.cluster(name, true)
	if err != nil {
		return m, err
	}
	defer c.remove()
	if err := c.createQueue(r, queuePath); err != nil {
		return m, err
	}
	if err := r.admin(c.controller, func(ctx context.Context, a admin) error {
		_, err := a.CreateGroup(ctx, core.GroupSpec{
			Queue: queuePath, Name: groupName, Start: core.Start{Mode: core.StartEarliest}, MaxDeliveries: core.UnlimitedDeliveries,
			NoSmartRetry: true, NoNackThrottle: true,
		})
		return err
	}); err != nil {
		return m, err
	}
	if _, err := r.fresh(c, 1); err != nil {
		return m, err
	}
	stored, err := r.store(c, parkedCount, parkedSize)
	if err != nil {
		return m, err
	}
	used, err := c.cpu()
	if err != nil {
		return m, err
	}
	o, err := settle(c, stored)
	if err != nil {
		return m, err
	}
	now, err := c.cpu()
	if err != nil {
		return m, err
	}
	m.before = freshTimes{o.PerSecond(), 1e6 * (now - used + o.CPU) / float64(stored)}
	if m.fresh, err = r.fresh(c, freshRounds); err != nil {
		return m, err
	}
	rss, err := c.output.memory()
	m.memory = rss / (1 << 20)
	return m, err
}

// ackAll has the group done with what is stored.
func (r *rig) ackAll(c *cluster, stored int64) (measure.Outcome, error) {
	return r.worker(measure.Job{
		Kind: "drain", Addr: c.controller.addr, Queue: queuePath, Group: groupName, Count: stored, Consumers: drainConsumers, Prefetch: drainPrefetch,
	})
}

// parkAll waits until the group has parked what is stored.
func (r *rig) parkAll(c *cluster, stored int64) (measure.Outcome, error) {
	o, err := r.worker(measure.Job{
		Kind: "park", Addr: c.controller.addr, Queue: queuePath, Group: groupName, Count: stored, Consumers: drainConsumers, Prefetch: drainPrefetch,
	})
	if err != nil {
		return o, err
	}
	began := time.Now()
	err = r.awaitParked(c.output, float64(stored))
	o.Seconds += time.Since(began).Seconds()
	return o, err
}

// store publishes at least so many messages, and answers how many.
func (r *rig) store(c *cluster, least int64, size int) (stored int64, err error) {
	for stored < least {
		o, err := r.worker(measure.Job{
			Kind: "produce", Addr: c.controller.addr, Queue: queuePath, Size: size, For: r.slice, Producers: replicatedProducers, InFlight: replicatedInFlight,
		})
		if err != nil {
			return stored, err
		}
		stored += o.Total
	}
	return stored, nil
}

// fresh publishes and drains some rounds. What it tells is of draining, of all rounds together: one that is slow because of what came before counts.
func (r *rig) fresh(c *cluster, rounds int) (t freshTimes, err error) {
	var messages, seconds, cpu float64
	for range rounds {
		stored, err := r.store(c, freshRound, messageSize)
		if err != nil {
			return t, err
		}
		used, err := c.cpu()
		if err != nil {
			return t, err
		}
		o, err := r.worker(measure.Job{
			Kind: "drain", Addr: c.controller.addr, Queue: queuePath, Group: groupName, Count: stored, Consumers: drainConsumers, Prefetch: drainPrefetch,
		})
		if err != nil {
			return t, err
		}
		now, err := c.cpu()
		if err != nil {
			return t, err
		}
		messages, seconds, cpu = messages+float64(o.Total), seconds+o.Seconds, cpu+now-used+o.CPU
	}
	return freshTimes{messages / seconds, 1e6 * cpu / messages}, nil
}

// awaitParked waits until the output host has parked so many.
func (r *rig) awaitParked(s *server, count float64) error {
	name := fmt.Sprintf("columba_outputhost_group_events_total{event=\"parked\",group=%q,queue=%q}", groupName, queuePath)
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		m, err := s.metrics(r.ctx)
		if err != nil {
			return err
		}
		if m[name] >= count {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%.0f of %.0f messages are parked after %s", m[name], count, patience)
		}
	}
}

// park sends back for an hour what is stored. The time is until the last nack has been handed to the server.
func park(j measure.Job) (o measure.Outcome, err error) {
	ctx, end := context.WithTimeout(context.Background(), patience)
	defer end()
	var taken, failed atomic.Int64
	errs := make([]error, j.Consumers)
	began := time.Now()
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			errs[i] = consumeOne(ctx, j, func(d *client.Delivery) {
				if d.Nack(client.After(parkedFor)) != nil {
					failed.Add(1)
				}
				if taken.Add(1) == j.Count {
					end()
				}
			})
		})
	}
	wg.Wait()
	o = measure.Outcome{Messages: taken.Load(), Total: taken.Load(), Errors: failed.Load(), Seconds: time.Since(began).Seconds()}
	if err = firstOf(errs); err == nil && o.Messages < j.Count {
		err = fmt.Errorf("%d of %d messages in %s", o.Messages, j.Count, patience)
	}
	return o, err
}
