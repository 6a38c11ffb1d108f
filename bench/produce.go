package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/columbamq/columba/bench/measure"
	"github.com/columbamq/columba/client"
)

// produce publishes as fast as it goes from several producers, each with a connection and a window of its own.
func produce(j measure.Job) (measure.Outcome, error) {
	var t measure.Tally
	return t.Over(j, func(ctx context.Context) error {
		errs := make([]error, j.Producers)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() { errs[i] = produceOne(ctx, j, &t) })
		}
		wg.Wait()
		return firstOf(errs)
	})
}

func produceOne(ctx context.Context, j measure.Job, t *measure.Tally) error {
	c, err := client.Dial(context.Background(), j.Addr)
	if err != nil {
		return err
	}
	defer c.Close()
	pub, err := c.Publisher(context.Background(), j.Queue, client.MaxInFlight(j.InFlight, 64<<20))
	if err != nil {
		return err
	}
	m := client.Message{Body: measure.Payload(j.Size)}
	for i := 0; ctx.Err() == nil; i++ {
		sent, sample := time.Now(), i%16 == 0
		if err := pub.PublishAsync(ctx, m, func(_ client.Receipt, err error) { t.Answered(sent, sample, err) }); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return closing(pub.Close)
}

// steady publishes at a rate, spread over queues, and times each message from when it was due.
func steady(j measure.Job) (measure.Outcome, error) {
	c, err := client.Dial(context.Background(), j.Addr)
	if err != nil {
		return measure.Outcome{}, err
	}
	defer c.Close()
	pubs := make([]*client.Publisher, max(1, j.Queues))
	for i := range pubs {
		queue := j.Queue
		if j.Queues > 1 {
			queue = fmt.Sprintf("%s-%d", j.Queue, i)
		}
		if pubs[i], err = c.Publisher(context.Background(), queue); err != nil {
			return measure.Outcome{}, err
		}
	}
	var t measure.Tally
	o, err := t.Over(j, func(ctx context.Context) error {
		m := client.Message{Body: measure.Payload(j.Size)}
		err := measure.Pace(ctx, j.Rate, func(n int, due time.Time) error {
			err := pubs[n%len(pubs)].PublishAsync(ctx, m, func(_ client.Receipt, err error) { t.Answered(due, true, err) })
			if ctx.Err() != nil { // the time is up
				return nil
			}
			return err
		})
		if err != nil {
			return err
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
