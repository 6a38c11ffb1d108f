package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/columbamq/columba/bench/measure"
	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// Loads of the section.
const (
	delayedCount = 1_000_000
	delayedSize  = 100 // bytes
	delayedFor   = time.Hour
	// freshRound is how many fresh messages are drained at once: for seconds, as connections take their time to begin and
	// to end.
	freshRound = 512 << 10
	// freshRounds are measured of each side, and one more goes before all: until stores write tables they read from
	// memory.
	freshRounds = 4
)

// retryQueue compares how fast fresh messages go through a group that has a million others in its retry queue with how
// fast they go through one that was done with the same million: stores that hold more are slower to read, whatever
// became of it. Both clusters live at once and take turns, as the machine is not the same from one minute to the next.
func (r *rig) retryQueue() error {
	var ratios, cheaper, published, plain, beside, moving, memory []float64
	for i := range r.pairs {
		acked, delayed, err := r.retryQueuePair(i)
		if err != nil {
			return err
		}
		a, p := acked.drained, delayed.drained
		plain, beside, moving, memory = append(plain, a.rate()), append(beside, p.rate()), append(moving, delayed.settled.rate()), append(memory, delayed.memory-acked.memory)
		ratios, cheaper = append(ratios, p.rate()/a.rate()), append(cheaper, a.cpuEach()/p.cpuEach())
		published = append(published, delayed.published.rate()/acked.published.rate())
		r.report.say("repetition %d: %.0f fresh messages a second (%.2f µs of all processes' CPU each), %.0f beside a million in the retry queue (%.2f µs); published at %.0f/s and %.0f/s; sent to the retry queue at %.0f/s (%.1f µs); output host %+.0f MiB",
			i+1, a.rate(), a.cpuEach(), p.rate(), p.cpuEach(), acked.published.rate(), delayed.published.rate(), delayed.settled.rate(), delayed.settled.cpuEach(), delayed.memory-acked.memory)
	}
	r.report.info("fresh messages consumed, 1 KiB, after a million acked ones", median(plain), "msg/s", fmt.Sprintf("beside a million in the retry queue %.0f/s", median(beside)))
	r.report.info("sent to the retry queue", median(moving), "msg/s", fmt.Sprintf("%d messages of %d bytes, for %s; output host %+.0f MiB", delayedCount, delayedSize, delayedFor, median(memory)))
	r.report.info("CPU time a fresh message, after acked ÷ beside delayed ones", median(cheaper), "×", "what a busy machine leaves of the comparison")
	r.report.info("fresh ones published beside a million in the retry queue ÷ after acked ones", median(published), "×", "what the input host and the stores see of it")
	r.report.atLeast("fresh beside a million in the retry queue ÷ fresh", median(ratios), 0.9, "×")
	return nil
}

// retryQueuePair measures a cluster that was done with a million messages, and one that sent as many to the retry
// queue. The order of the two alternates between rounds.
func (r *rig) retryQueuePair(i int) (acked, delayed side, err error) {
	acked, delayed = side{name: "acked", how: r.ackAll}, side{name: "delayed", how: r.delayAll}
	turns := []*side{&acked, &delayed}
	if i%2 == 1 {
		slices.Reverse(turns)
	}
	for _, s := range turns {
		if err := r.begin(s, i); err != nil {
			return acked, delayed, err
		}
		defer s.cluster.remove()
	}
	slices.Reverse(turns)
	for range freshRounds {
		for _, s := range turns {
			if err := r.fresh(s); err != nil {
				return acked, delayed, err
			}
		}
	}
	for _, s := range turns {
		m, err := s.cluster.output.memory()
		if err != nil {
			return acked, delayed, err
		}
		s.memory = m / (1 << 20)
	}
	return acked, delayed, nil
}

// side is one cluster and what it did: with the million, and with fresh messages after that, in all rounds together.
type side struct {
	name                        string
	how                         func(c *cluster, stored int64) (measure.Outcome, error) // the million is settled
	cluster                     *cluster
	settled, published, drained phase
	memory                      float64 // MiB of the output host
}

// phase sums up what was done, in how many seconds, and how many of the servers' and of the client's CPU.
type phase struct {
	messages, seconds float64
	servers           roleCPU
	client            float64
}

func (p *phase) add(q phase) {
	p.messages, p.seconds, p.client = p.messages+q.messages, p.seconds+q.seconds, p.client+q.client
	p.servers = p.servers.plus(1, q.servers)
}

// rate is messages a second.
func (p phase) rate() float64 { return p.messages / p.seconds }

// cpuEach is µs of all processes a message.
func (p phase) cpuEach() float64 { return 1e6*p.client/p.messages + p.serversEach().sum() }

// serversEach is µs of the servers a message.
func (p phase) serversEach() roleCPU { return roleCPU{}.plus(1e6/p.messages, p.servers) }

func (p phase) String() string { return fmt.Sprintf("%.0f/s %v", p.rate(), p.serversEach()) }

// begin starts a side's cluster with a queue and a group, has a round go through it, and then a million messages stored
// and settled.
func (r *rig) begin(s *side, i int) (err error) {
	if s.cluster, err = r.cluster(fmt.Sprint(s.name, i), true); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			s.cluster.remove()
		}
	}()
	if err := s.cluster.createQueue(r, queuePath); err != nil {
		return err
	}
	if err := r.admin(s.cluster.controller, func(ctx context.Context, a admin) error {
		_, err := a.CreateGroup(ctx, core.GroupSpec{
			Queue: queuePath, Name: groupName, Start: core.Start{Mode: core.StartEarliest}, MaxDeliveries: core.UnlimitedDeliveries,
			Breaker: core.BreakerOff, NoNackThrottle: true,
		})
		return err
	}); err != nil {
		return err
	}
	if err := r.fresh(s); err != nil {
		return err
	}
	s.published, s.drained = phase{}, phase{}
	stored, err := r.store(s.cluster, delayedCount, delayedSize)
	if err != nil {
		return err
	}
	return s.cluster.during(&s.settled, func() (measure.Outcome, error) { return s.how(s.cluster, int64(stored.messages)) })
}

// fresh publishes and drains a round, and counts both. A round that is slow because of what came before counts.
func (r *rig) fresh(s *side) error {
	stored, err := r.store(s.cluster, freshRound, messageSize)
	if err != nil {
		return err
	}
	s.published.add(stored)
	return s.cluster.during(&s.drained, func() (measure.Outcome, error) { return r.ackAll(s.cluster, int64(stored.messages)) })
}

// store publishes at least so many messages.
func (r *rig) store(c *cluster, least float64, size int) (p phase, err error) {
	for p.messages < least && err == nil {
		err = c.during(&p, func() (measure.Outcome, error) {
			return r.worker(measure.Job{
				Kind: "produce", Addr: c.controller.addr, Queue: queuePath, Size: size, For: r.slice, Producers: replicatedProducers, InFlight: replicatedInFlight,
			})
		})
	}
	return p, err
}

// during adds what was done, and what it cost the cluster.
func (c *cluster) during(p *phase, do func() (measure.Outcome, error)) error {
	before, err := c.cpuByRole()
	if err != nil {
		return err
	}
	o, err := do()
	if err != nil {
		return err
	}
	after, err := c.cpuByRole()
	if err != nil {
		return err
	}
	p.add(phase{float64(o.Total), o.Seconds, after.plus(-1, before), o.CPU})
	return nil
}

// ackAll has the group done with what is stored.
func (r *rig) ackAll(c *cluster, stored int64) (measure.Outcome, error) {
	return r.worker(measure.Job{
		Kind: "drain", Addr: c.controller.addr, Queue: queuePath, Group: groupName, Count: stored, Consumers: drainConsumers, Prefetch: drainPrefetch,
	})
}

// delayAll waits until the group has sent to its retry queue what is stored.
func (r *rig) delayAll(c *cluster, stored int64) (measure.Outcome, error) {
	o, err := r.worker(measure.Job{
		Kind: "delay", Addr: c.controller.addr, Queue: queuePath, Group: groupName, Count: stored, Consumers: drainConsumers, Prefetch: drainPrefetch,
	})
	if err != nil {
		return o, err
	}
	began := time.Now()
	err = r.awaitRetryQueued(c.output, float64(stored))
	o.Seconds += time.Since(began).Seconds()
	return o, err
}

// awaitRetryQueued waits until the output host has sent so many to the retry queue.
func (r *rig) awaitRetryQueued(s *server, count float64) error {
	name := fmt.Sprintf("columba_outputhost_group_events_total{event=\"retry_queued\",group=%q,queue=%q}", groupName, queuePath)
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		m, err := s.metrics(r.ctx)
		if err != nil {
			return err
		}
		if m[name] >= count {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%.0f of %.0f messages are in the retry queue after %s", m[name], count, patience)
		}
	}
}

// delay sends back for an hour what is stored. The time is until the last nack has been handed to the server.
func delay(j measure.Job) (o measure.Outcome, err error) {
	ctx, end := context.WithTimeout(context.Background(), patience)
	defer end()
	var taken, failed atomic.Int64
	errs := make([]error, j.Consumers)
	began := time.Now()
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			errs[i] = consumeOne(ctx, j, func(d *client.Delivery) {
				if d.Nack(client.After(delayedFor)) != nil {
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
