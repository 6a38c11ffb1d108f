package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/columbamq/columba/bench/measure"
	"github.com/columbamq/columba/client"
)

// sampleEvery is how many messages share one look at the clock.
const sampleEvery = 256

// publish publishes as fast as it goes, with the library's default window, and counts what is acknowledged.
func publish(j measure.Job) (measure.Outcome, error) {
	ctx, cancel := context.WithTimeout(context.Background(), j.Warm+j.For)
	defer cancel()
	c, pub, err := publisher(ctx, j)
	if err != nil {
		return measure.Outcome{}, err
	}
	defer c.Close()
	var acked, failed atomic.Int64
	var latencies measure.Samples // of the publisher's callback goroutine until Close has returned
	done := func(_ client.Receipt, err error) {
		if err != nil {
			failed.Add(1)
			return
		}
		acked.Add(1)
	}
	var before int64
	var began time.Time
	warm := time.AfterFunc(j.Warm, func() { before, began = acked.Load(), time.Now() })
	m := client.Message{Body: measure.Payload(j.Size)}
	for i := 0; ctx.Err() == nil; i++ {
		report := done
		if i%sampleEvery == 0 {
			sent := time.Now()
			report = func(r client.Receipt, err error) {
				latencies = append(latencies, time.Since(sent))
				done(r, err)
			}
		}
		if err := pub.PublishAsync(ctx, m, report); err != nil && ctx.Err() == nil {
			return measure.Outcome{}, err
		}
	}
	warm.Stop()
	o := measure.Outcome{Messages: acked.Load() - before, Seconds: time.Since(began).Seconds()}
	if err := closing(pub.Close); err != nil {
		return o, err
	}
	o.Total = acked.Load()
	o.Errors, o.P50, o.P99 = failed.Load(), latencies.Quantile(0.5), latencies.Quantile(0.99)
	return o, nil
}

// oneInFlight publishes one message after another.
func oneInFlight(j measure.Job) (measure.Outcome, error) {
	ctx, cancel := context.WithTimeout(context.Background(), j.Warm+j.For+patience)
	defer cancel()
	c, pub, err := publisher(ctx, j)
	if err != nil {
		return measure.Outcome{}, err
	}
	defer c.Close()
	var latencies measure.Samples
	m := client.Message{Body: measure.Payload(j.Size)}
	began := time.Now()
	for time.Since(began) < j.Warm+j.For {
		sent := time.Now()
		if _, err := pub.Publish(ctx, m); err != nil {
			return measure.Outcome{}, err
		}
		if sent.Sub(began) > j.Warm {
			latencies = append(latencies, time.Since(sent))
		}
	}
	o := measure.Outcome{Messages: int64(len(latencies)), Seconds: j.For.Seconds(), P50: latencies.Quantile(0.5), P99: latencies.Quantile(0.99)}
	return o, closing(pub.Close)
}

func publisher(ctx context.Context, j measure.Job) (*client.Client, *client.Publisher, error) {
	c, err := client.Dial(ctx, j.Addr)
	if err != nil {
		return nil, nil, err
	}
	pub, err := c.Publisher(ctx, j.Queue)
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	return c, pub, nil
}

// consume takes count messages and acknowledges each by itself. The time is from the first delivery until the last
// acknowledgement has been handed to the server.
func consume(j measure.Job) (measure.Outcome, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := client.Dial(ctx, j.Addr)
	if err != nil {
		return measure.Outcome{}, err
	}
	defer c.Close()
	con, err := c.Consumer(ctx, j.Queue, j.Group, client.Prefetch(prefetch))
	if err != nil {
		return measure.Outcome{}, err
	}
	var o measure.Outcome
	var began time.Time
	for d, err := range con.Deliveries(ctx) {
		if err != nil {
			return o, err
		}
		if o.Messages == 0 {
			began = time.Now()
		}
		if err := d.Ack(); err != nil {
			o.Errors++
		}
		if o.Messages++; o.Messages == j.Count {
			break
		}
	}
	if err := con.Flush(ctx); err != nil {
		return o, err
	}
	o.Seconds, o.Total = time.Since(began).Seconds(), o.Messages
	return o, closing(con.Close)
}

// prefetch of the consumer, messages.
const prefetch = 16 << 10

func closing(close func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return close(ctx)
}
