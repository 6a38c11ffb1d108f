package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/columbamq/columba/client"
)

// tally is what several producers measured together.
type tally struct {
	acked, failed atomic.Int64
	counting      atomic.Bool // the warm-up is over
	mu            struct {
		sync.Mutex
		latencies samples
		gap       time.Duration // longest time without an acknowledgement
		last      time.Time
	}
}

// answered notes one outcome of a message sent then.
func (t *tally) answered(sent time.Time, sample bool, err error) {
	if err != nil {
		t.failed.Add(1)
		return
	}
	t.acked.Add(1)
	if !sample || !t.counting.Load() {
		return
	}
	now := time.Now()
	t.mu.Lock()
	t.mu.latencies = append(t.mu.latencies, now.Sub(sent))
	if !t.mu.last.IsZero() {
		t.mu.gap = max(t.mu.gap, now.Sub(t.mu.last))
	}
	t.mu.last = now
	t.mu.Unlock()
}

// over runs f for the job's time and returns the outcome of what was acknowledged after the warm-up.
func (t *tally) over(j job, f func(ctx context.Context) error) (outcome, error) {
	ctx, cancel := context.WithTimeout(context.Background(), j.Warm+j.For)
	defer cancel()
	var before int64
	var began time.Time
	warm := time.AfterFunc(j.Warm, func() {
		before, began = t.acked.Load(), time.Now()
		t.counting.Store(true)
	})
	defer warm.Stop()
	failed := make(chan error, 1)
	go func() { failed <- f(ctx) }()
	<-ctx.Done()
	o := outcome{Messages: t.acked.Load() - before, Seconds: time.Since(began).Seconds()}
	t.counting.Store(false)
	if err := <-failed; err != nil {
		return o, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	o.Total, o.Errors = t.acked.Load(), t.failed.Load()
	o.P50, o.P99, o.Gap = t.mu.latencies.quantile(0.5), t.mu.latencies.quantile(0.99), t.mu.gap.Seconds()
	return o, nil
}

// produce publishes as fast as it goes from several producers, each with a connection and a window of its own.
func produce(j job) (outcome, error) {
	var t tally
	return t.over(j, func(ctx context.Context) error {
		errs := make([]error, j.Producers)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() { errs[i] = produceOne(ctx, j, &t) })
		}
		wg.Wait()
		return firstOf(errs)
	})
}

func produceOne(ctx context.Context, j job, t *tally) error {
	c, err := client.Dial(context.Background(), j.Addr)
	if err != nil {
		return err
	}
	defer c.Close()
	pub, err := c.Publisher(context.Background(), j.Queue, client.MaxInFlight(j.InFlight, 64<<20))
	if err != nil {
		return err
	}
	m := client.Message{Body: payload(j.Size)}
	for i := 0; ctx.Err() == nil; i++ {
		sent, sample := time.Now(), i%16 == 0
		if err := pub.PublishAsync(ctx, m, func(_ client.Receipt, err error) { t.answered(sent, sample, err) }); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return closing(pub.Close)
}

// steady publishes at a rate, spread over queues, and times each message from when it was due.
func steady(j job) (outcome, error) {
	c, err := client.Dial(context.Background(), j.Addr)
	if err != nil {
		return outcome{}, err
	}
	defer c.Close()
	pubs := make([]*client.Publisher, max(1, j.Queues))
	for i := range pubs {
		queue := j.Queue
		if j.Queues > 1 {
			queue = fmt.Sprintf("%s-%d", j.Queue, i)
		}
		if pubs[i], err = c.Publisher(context.Background(), queue); err != nil {
			return outcome{}, err
		}
	}
	var t tally
	o, err := t.over(j, func(ctx context.Context) error {
		m := client.Message{Body: payload(j.Size)}
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		began, sent := time.Now(), 0
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
			for ; sent < int(time.Since(began).Seconds()*float64(j.Rate)); sent++ {
				due := began.Add(time.Duration(float64(sent) / float64(j.Rate) * 1e9))
				if err := pubs[sent%len(pubs)].PublishAsync(ctx, m, func(_ client.Receipt, err error) { t.answered(due, true, err) }); err != nil && ctx.Err() == nil {
					return err
				}
			}
		}
		var errs []error
		for _, p := range pubs {
			errs = append(errs, closing(p.Close))
		}
		return firstOf(errs)
	})
	return o, err
}

func firstOf(errs []error) error {
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return errs[i]
	}
	return nil
}
