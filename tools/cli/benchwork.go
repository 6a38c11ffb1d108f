package cli

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/columbamq/columba/client"
)

// benchPublisher publishes with many messages in flight until ctx ends or nothing is left.
func benchPublisher(ctx context.Context, run *benchRun, result *benchResult) error {
	pub, err := run.publisher(ctx)
	if err != nil {
		return err
	}
	body := make([]byte, run.flags.size)
	for ctx.Err() == nil && run.take() {
		sent := time.Now()
		// done runs on the publisher's goroutine, one call at a time: result is its until Close has returned.
		err := pub.PublishAsync(ctx, client.Message{Body: body}, func(_ client.Receipt, err error) {
			result.note(run, len(body), time.Since(sent), err)
		})
		if err != nil && ctx.Err() == nil {
			pub.Close(context.WithoutCancel(ctx))
			return err
		}
	}
	return run.closePublisher(ctx, pub)
}

// benchLatency publishes one message at a time.
func benchLatency(ctx context.Context, run *benchRun, result *benchResult) error {
	pub, err := run.publisher(ctx)
	if err != nil {
		return err
	}
	body := make([]byte, run.flags.size)
	for ctx.Err() == nil && run.take() {
		sent := time.Now()
		// The last one is waited for although the benchmark's time is over: its outcome counts.
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), run.app.timeout)
		_, err := pub.Publish(limited, client.Message{Body: body})
		cancel()
		result.note(run, len(body), time.Since(sent), err)
	}
	return run.closePublisher(ctx, pub)
}

func (b *benchRun) publisher(ctx context.Context) (*client.Publisher, error) {
	limited, cancel := context.WithTimeout(ctx, b.app.timeout)
	defer cancel()
	return b.client.Publisher(limited, b.queue, client.MaxInFlight(b.flags.inFlight, inFlightBytes), client.PublishTimeout(b.app.timeout))
}

func (b *benchRun) closePublisher(ctx context.Context, pub *client.Publisher) error {
	finish, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.app.timeout)
	defer cancel()
	return pub.Close(finish)
}

func (b *benchResult) note(run *benchRun, bytes int, took time.Duration, err error) {
	if err != nil {
		b.errors++
		return
	}
	b.messages++
	b.bytes += int64(bytes)
	b.latency.add(took)
	run.bar.add(1)
}

// benchConsumer consumes until ctx ends, nothing is left or nothing comes for --idle.
func benchConsumer(ctx context.Context, run *benchRun, result *benchResult) error {
	limited, cancel := context.WithTimeout(ctx, run.app.timeout)
	con, err := run.client.Consumer(limited, run.queue, run.name, client.Prefetch(run.flags.inFlight))
	cancel()
	if err != nil {
		return err
	}
	receiving, stop := context.WithCancel(ctx)
	defer stop()
	var last atomic.Int64 // when the last message came, unix ns
	last.Store(time.Now().UnixNano())
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		watchIdle(receiving, stop, &last, run.flags.idle)
	}()
	for d, err := range con.Deliveries(receiving) {
		if err != nil {
			if receiving.Err() == nil {
				result.errors++
			}
			break
		}
		if !run.take() {
			d.Nack(client.After(0))
			break
		}
		now := time.Now()
		last.Store(now.UnixNano())
		result.note(run, len(d.Body), now.Sub(d.Enqueued), d.Ack())
	}
	stop()
	<-watching
	for seen := run.lastSeen.Load(); last.Load() > seen && !run.lastSeen.CompareAndSwap(seen, last.Load()); {
		seen = run.lastSeen.Load()
	}
	finish, cancelClose := context.WithTimeout(context.WithoutCancel(ctx), run.app.timeout)
	defer cancelClose()
	return con.Close(finish)
}

// watchIdle calls stop when last has been the same for idle; 0 never.
func watchIdle(ctx context.Context, stop func(), last *atomic.Int64, idle time.Duration) {
	if idle == 0 {
		return
	}
	tick := time.NewTicker(max(idle/10, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if now.Sub(time.Unix(0, last.Load())) >= idle {
				stop()
				return
			}
		}
	}
}
