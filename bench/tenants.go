package main

import (
	"fmt"

	"github.com/columbamq/columba/bench/measure"
	"github.com/columbamq/columba/core"
)

// Loads of the section: a steady tenant, and one that publishes as fast as it goes.
const (
	quietQueue     = "/quiet/q"
	noisyNamespace = "/noisy"
	noisyQueue     = noisyNamespace + "/q"
	quietRate      = 1000
	overQuota      = 10 // what the noisy one does without a limit ÷ its quota
)

// tenants compares a tenant's latency alone with that beside another one which is at ten times its quota.
func (r *rig) tenants() error {
	var ratios, alone, beside []float64
	for i := range r.pairs {
		a, b, err := r.tenantsOnce(fmt.Sprint("tenants", i))
		if err != nil {
			return err
		}
		alone, beside, ratios = append(alone, a.P99), append(beside, b.P99), append(ratios, b.P99/a.P99)
		r.report.say("repetition %d: steady 1,000 msg/s alone p50 %.2f p99 %.2f ms, beside the noisy one p50 %.2f p99 %.2f ms", i+1, a.P50, a.P99, b.P50, b.P99)
	}
	r.report.info("a steady 1,000 msg/s alone, p99", median(alone), "ms", "")
	r.report.info("the same beside a tenant at 10 × its quota, p99", median(beside), "ms", "")
	r.report.atMost("p99 beside a noisy tenant ÷ alone", median(ratios), 2, "×")
	return nil
}

// tenantsOnce gives the noisy tenant a tenth of what it does without a limit as its quota, and measures the other one
// with and without it.
func (r *rig) tenantsOnce(name string) (alone, beside measure.Outcome, err error) {
	s, err := r.server(name)
	if err != nil {
		return alone, beside, err
	}
	defer s.remove()
	c, err := s.dial(r.ctx)
	if err != nil {
		return alone, beside, err
	}
	defer c.Close()
	for _, path := range []string{quietQueue, noisyQueue} {
		if _, err := c.Admin().CreateQueue(r.ctx, core.QueueSpec{Path: path}); err != nil {
			return alone, beside, err
		}
	}
	noise := measure.Job{Kind: "produce", Addr: s.addr, Queue: noisyQueue, Size: 1024, Warm: warm, For: r.slice, Producers: replicatedProducers, InFlight: replicatedInFlight}
	free, err := r.worker(noise)
	if err != nil {
		return alone, beside, err
	}
	quota := int64(free.PerSecond() / overQuota)
	if _, err := c.Admin().CreateNamespace(r.ctx, core.NamespaceSpec{Name: noisyNamespace, MessagesPerSecond: quota}); err != nil {
		return alone, beside, err
	}
	quiet := measure.Job{Kind: "steady", Addr: s.addr, Queue: quietQueue, Size: 1024, Rate: quietRate, Warm: 2 * warm, For: 2 * r.slice}
	if alone, err = r.worker(quiet); err != nil {
		return alone, beside, err
	}
	noise.For = quiet.Warm + quiet.For + 4*warm
	noisy := make(chan error, 1)
	var held measure.Outcome
	go func() {
		var err error
		held, err = r.worker(noise)
		noisy <- err
	}()
	beside, err = r.worker(quiet)
	if nerr := <-noisy; err == nil {
		err = nerr
	}
	if err == nil && held.PerSecond() > 1.5*float64(quota) {
		err = fmt.Errorf("the noisy tenant published %.0f messages a second, its quota is %d", held.PerSecond(), quota)
	}
	r.report.say("the noisy tenant: %.0f msg/s without a limit, quota %d, held to %.0f", free.PerSecond(), quota, held.PerSecond())
	return alone, beside, err
}
