package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/columbamq/columba/bench/measure"
	"github.com/columbamq/columba/client"
)

// drain takes what is stored with several consumers of one group, and acknowledges each message by itself. The time is
// from the first delivery until the last acknowledgement has been handed to the server.
func drain(j measure.Job) (measure.Outcome, error) { return take(j, false) }

// hold is drain, but for the first message that comes, which is never settled.
func hold(j measure.Job) (measure.Outcome, error) { return take(j, true) }

func take(j measure.Job, hold bool) (measure.Outcome, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var taken, began, failed atomic.Int64
	errs := make([]error, j.Consumers)
	all, end := context.WithCancel(ctx)
	defer end()
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			errs[i] = consumeOne(all, j, func(d *client.Delivery) {
				if began.Load() == 0 && began.CompareAndSwap(0, time.Now().UnixNano()) && hold {
					return
				}
				if d.Ack() != nil {
					failed.Add(1)
				}
				if taken.Add(1) == j.Count {
					end()
				}
			})
		})
	}
	wg.Wait()
	o := measure.Outcome{Messages: taken.Load(), Total: taken.Load(), Errors: failed.Load(), Seconds: time.Since(time.Unix(0, began.Load())).Seconds()}
	err := firstOf(errs)
	if err == nil && o.Messages < j.Count {
		err = fmt.Errorf("%d of %d messages in %s", o.Messages, j.Count, patience)
	}
	return o, err
}

// rest acknowledges what is left until nothing has come for the time of the job.
func rest(j measure.Job) (o measure.Outcome, err error) {
	ctx, end := context.WithTimeout(context.Background(), patience)
	defer end()
	idle := time.AfterFunc(j.For, end)
	err = consumeOne(ctx, j, func(d *client.Delivery) {
		idle.Reset(j.For)
		o.Messages++
		if d.Ack() != nil {
			o.Errors++
		}
	})
	o.Total = o.Messages
	return o, err
}

// consumeOne gives f each delivery of a consumer with a connection of its own until ctx ends, and waits for what it
// acknowledged.
func consumeOne(ctx context.Context, j measure.Job, f func(*client.Delivery)) error {
	c, err := client.Dial(context.Background(), j.Addr)
	if err != nil {
		return err
	}
	defer c.Close()
	con, err := c.Consumer(context.Background(), j.Queue, j.Group, client.Prefetch(j.Prefetch))
	if err != nil {
		return err
	}
	for d, err := range con.Deliveries(ctx) {
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return err
		}
		f(d)
	}
	flush, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := con.Flush(flush); err != nil {
		return err
	}
	return closing(con.Close)
}

// flow publishes at a rate while consumers take, and times each message from when it was due to its acknowledgement,
// and to its delivery.
func flow(j measure.Job) (measure.Outcome, error) {
	c, pub, err := publisher(context.Background(), j)
	if err != nil {
		return measure.Outcome{}, err
	}
	defer c.Close()
	var t measure.Tally
	return t.Over(j, func(ctx context.Context) error {
		errs := make([]error, j.Consumers+1)
		var wg sync.WaitGroup
		for i := range j.Consumers {
			wg.Go(func() {
				errs[i] = consumeOne(ctx, j, func(d *client.Delivery) {
					t.Delivered(measure.Stamped(d.Body))
					_ = d.Ack() // a failed one is delivered again
				})
			})
		}
		body := measure.Payload(j.Size)
		errs[j.Consumers] = measure.Pace(ctx, j.Rate, func(_ int, due time.Time) error {
			measure.Stamp(body, due)
			err := pub.PublishAsync(ctx, client.Message{Body: body}, func(_ client.Receipt, err error) { t.Answered(due, true, err) })
			if ctx.Err() != nil { // the time is up
				return nil
			}
			return err
		})
		wg.Wait()
		return firstOf(append(errs, closing(pub.Close)))
	})
}
