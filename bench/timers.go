package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/columbamq/columba/bench/measure"
	"github.com/columbamq/columba/client"
)

// Loads of the section.
const (
	timerCount  = 1_000_000
	timerSize   = 100 // bytes
	timerAhead  = 40 * time.Second
	timerSpread = time.Minute
)

// timers publishes a million messages that are due within one minute, and measures how fast they are taken, how late
// they come, and what the output host needs for them.
func (r *rig) timers() error {
	var ratios, accepted, lateness, memory []float64
	for i := range min(r.pairs, 3) {
		m, err := r.timersOnce(fmt.Sprint("timers", i))
		if err != nil {
			return err
		}
		accepted, lateness, memory = append(accepted, m.accepted), append(lateness, m.late99), append(memory, m.memory)
		ratios = append(ratios, m.accepted/m.plain)
		r.report.say("repetition %d: accepted %.0f/s, without a time %.0f/s; late p50 %.1f p99 %.1f ms; output host %.0f MiB", i+1, m.accepted, m.plain, m.late50, m.late99, m.memory)
	}
	r.report.info("a million messages due within one minute, accepted", median(accepted), "msg/s", fmt.Sprintf("%d bytes each, 3 replicas", timerSize))
	r.report.atLeast("accepted ÷ published without a time", median(ratios), 0.4, "×")
	r.report.atMost("late, p99", median(lateness), 100, "ms")
	r.report.atMost("output host, resident", median(memory), 300*1e6/(1<<20), "MiB")
	return nil
}

// timed is one repetition: messages per second, ms, MiB.
type timed struct{ plain, accepted, late50, late99, memory float64 }

func (r *rig) timersOnce(name string) (m timed, err error) {
	c, err := r.cluster(name, true)
	if err != nil {
		return m, err
	}
	defer c.remove()
	if err := c.createQueue(r, queuePath, queuePath+"-plain"); err != nil {
		return m, err
	}
	if err := r.createGroup(c.controller, defaultLock); err != nil {
		return m, err
	}
	plain, err := r.worker(measure.Job{
		Kind: "produce", Addr: c.controller.addr, Queue: queuePath + "-plain", Size: timerSize, Warm: warm, For: r.slice,
		Producers: replicatedProducers, InFlight: replicatedInFlight,
	})
	if err != nil {
		return m, err
	}
	o, err := r.worker(measure.Job{
		Kind: "timers", Addr: c.controller.addr, Queue: queuePath, Group: groupName, Size: timerSize, Count: timerCount,
		Producers: replicatedProducers, InFlight: replicatedInFlight, Consumers: drainConsumers, Prefetch: drainPrefetch,
	})
	if err != nil {
		return m, err
	}
	rss, err := c.output.memory()
	return timed{plain.PerSecond(), o.PerSecond(), o.Deliver50, o.Deliver99, rss / (1 << 20)}, err
}

// fireTimers publishes the job's messages, due at random within timerSpread, and takes them all. The rate is that of
// their acknowledgements.
func fireTimers(j measure.Job) (o measure.Outcome, err error) {
	ctx, end := context.WithTimeout(context.Background(), timerAhead+timerSpread+patience)
	defer end()
	var acked, taken, failed atomic.Int64
	late := make(measure.Samples, j.Count)
	errs := make([]error, j.Producers+j.Consumers)
	began := time.Now()
	var producers, consumers sync.WaitGroup
	for i := range j.Consumers {
		consumers.Go(func() {
			errs[i] = consumeOne(ctx, j, func(d *client.Delivery) {
				n := taken.Add(1)
				if n <= j.Count {
					late[n-1] = time.Since(measure.Stamped(d.Body))
				}
				if d.Ack() != nil {
					failed.Add(1)
				}
				if n == j.Count {
					end()
				}
			})
		})
	}
	for i := range j.Producers {
		producers.Go(func() { errs[j.Consumers+i] = publishTimers(ctx, j, began.Add(timerAhead), &acked, &failed) })
	}
	producers.Wait()
	o = measure.Outcome{Messages: acked.Load(), Seconds: time.Since(began).Seconds()}
	consumers.Wait()
	o.Total, o.Errors = taken.Load(), failed.Load()
	o.Deliver50, o.Deliver99 = late.Quantile(0.5), late.Quantile(0.99)
	if err = firstOf(errs); err == nil && (o.Total < j.Count || o.Seconds > timerAhead.Seconds()) {
		err = fmt.Errorf("%d of %d messages came; they were accepted in %.1f s, the first was due after %s", o.Total, j.Count, o.Seconds, timerAhead)
	}
	return o, err
}

// publishTimers is one producer's part; it ends when all is acknowledged.
func publishTimers(ctx context.Context, j measure.Job, from time.Time, acked, failed *atomic.Int64) error {
	c, err := client.Dial(ctx, j.Addr)
	if err != nil {
		return err
	}
	defer c.Close()
	pub, err := c.Publisher(ctx, j.Queue, client.MaxInFlight(j.InFlight, 64<<20))
	if err != nil {
		return err
	}
	body := measure.Payload(j.Size)
	for range j.Count / int64(j.Producers) {
		due := from.Add(rand.N(timerSpread)).Truncate(time.Millisecond)
		measure.Stamp(body, due)
		err := pub.PublishAsync(ctx, client.Message{Body: body, DeliverAt: due}, func(_ client.Receipt, err error) {
			if err != nil {
				failed.Add(1)
				return
			}
			acked.Add(1)
		})
		if err != nil {
			return err
		}
	}
	return closing(pub.Close)
}
