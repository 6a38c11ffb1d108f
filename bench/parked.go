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
	parkedCount  = 1_000_000
	parkedSize   = 100 // bytes
	parkedFor    = time.Hour
	parkedRounds = 3 // of fresh messages, before and after
)

// parked compares how fast fresh messages go through a group with how fast they do once a million others are parked.
func (r *rig) parked() error {
	var ratios, before, after, parking, memory []float64
	for i := range min(r.pairs, 3) {
		m, err := r.parkedOnce(fmt.Sprint("parked", i))
		if err != nil {
			return err
		}
		before, after, parking, memory = append(before, m.before), append(after, m.after), append(parking, m.parking), append(memory, m.memory)
		ratios = append(ratios, m.after/m.before)
		r.report.say("repetition %d: %.0f fresh messages a second, %.0f beside a million parked ones; parked at %.0f/s; output host %+.0f MiB", i+1, m.before, m.after, m.parking, m.memory)
	}
	r.report.info("fresh messages consumed, 1 KiB, before", median(before), "msg/s", fmt.Sprintf("beside a million parked ones %.0f/s", median(after)))
	r.report.info("parked", median(parking), "msg/s", fmt.Sprintf("%d messages of %d bytes, for %s; output host %+.0f MiB", parkedCount, parkedSize, parkedFor, median(memory)))
	r.report.atLeast("fresh beside a million parked ÷ fresh", median(ratios), 0.9, "×")
	return nil
}

// parkedTimes is one repetition: messages per second, and MiB that the output host has more.
type parkedTimes struct{ before, after, parking, memory float64 }

func (r *rig) parkedOnce(name string) (m parkedTimes, err error) {
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
	run := func(j measure.Job) (measure.Outcome, error) {
		j.Addr, j.Queue, j.Group = c.controller.addr, queuePath, groupName
		return r.worker(j)
	}
	if m.before, err = r.fresh(run); err != nil {
		return m, err
	}
	idle, err := c.output.memory()
	if err != nil {
		return m, err
	}
	stored := int64(0)
	for stored < parkedCount {
		o, err := run(measure.Job{Kind: "produce", Size: parkedSize, For: r.slice, Producers: replicatedProducers, InFlight: replicatedInFlight})
		if err != nil {
			return m, err
		}
		stored += o.Total
	}
	o, err := run(measure.Job{Kind: "park", Count: stored, Consumers: drainConsumers, Prefetch: drainPrefetch})
	if err != nil {
		return m, err
	}
	began := time.Now()
	if err := r.awaitParked(c.output, float64(stored)); err != nil {
		return m, err
	}
	m.parking = float64(stored) / (o.Seconds + time.Since(began).Seconds())
	if m.after, err = r.fresh(run); err != nil {
		return m, err
	}
	rss, err := c.output.memory()
	m.memory = (rss - idle) / (1 << 20)
	return m, err
}

// fresh publishes and drains some rounds; the rate is that of draining.
func (r *rig) fresh(run func(measure.Job) (measure.Outcome, error)) (float64, error) {
	var rates []float64
	for range parkedRounds {
		stored, err := run(measure.Job{Kind: "produce", Size: messageSize, For: r.slice, Producers: replicatedProducers, InFlight: replicatedInFlight})
		if err != nil {
			return 0, err
		}
		o, err := run(measure.Job{Kind: "drain", Count: stored.Total, Consumers: drainConsumers, Prefetch: drainPrefetch})
		if err != nil {
			return 0, err
		}
		rates = append(rates, o.PerSecond())
	}
	return median(rates), nil
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
