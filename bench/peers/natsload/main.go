// Command natsload drives a NATS JetStream stream the way bench's own workers drive Columba: the same job, the same
// outcome, as JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/columbamq/columba/bench/measure"
)

const (
	streamName = "S"
	patience   = 30 * time.Second // for the last answers
)

var errNoAnswer = errors.New("no answer")

// after is closed when the time has passed.
func after(d time.Duration) <-chan struct{} {
	c := make(chan struct{})
	time.AfterFunc(d, func() { close(c) })
	return c
}

func main() {
	var j measure.Job
	err := errors.New("give one argument: the job as JSON")
	if len(os.Args) == 2 {
		err = json.Unmarshal([]byte(os.Args[1]), &j)
	}
	var o measure.Outcome
	if err == nil {
		o, err = run(j)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "natsload:", err)
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(o)
}

func run(j measure.Job) (measure.Outcome, error) {
	switch j.Kind {
	case "create":
		return measure.Outcome{}, create(j)
	case "produce":
		return produce(j)
	case "latency":
		return latency(j)
	case "steady":
		return steady(j)
	case "drain":
		return drain(j)
	}
	return measure.Outcome{}, fmt.Errorf("no job %q", j.Kind)
}

func connect(j measure.Job, inFlight int) (*nats.Conn, jetstream.JetStream, error) {
	nc, err := nats.Connect(j.Addr)
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(inFlight))
	return nc, js, err
}

// create makes the stream: three replicas on disk. The cluster may still be electing, so it is tried for a while.
func create(j measure.Job) error {
	nc, js, err := connect(j, 1)
	if err != nil {
		return err
	}
	defer nc.Close()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		_, err = js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
			Name: streamName, Subjects: []string{j.Queue}, Storage: jetstream.FileStorage, Replicas: 3,
		})
		cancel()
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

func produce(j measure.Job) (measure.Outcome, error) {
	var t measure.Tally
	return t.Over(j, func(ctx context.Context) error {
		errs := make(chan error, j.Producers)
		for range j.Producers {
			go func() { errs <- produceOne(ctx, j, &t) }()
		}
		var all []error
		for range j.Producers {
			all = append(all, <-errs)
		}
		return errors.Join(all...)
	})
}

// produceOne keeps up to InFlight messages without an answer. A goroutine awaits the answers in order, which costs
// least.
func produceOne(ctx context.Context, j measure.Job, t *measure.Tally) error {
	nc, js, err := connect(j, j.InFlight+1)
	if err != nil {
		return err
	}
	defer nc.Close()
	body := measure.Payload(j.Size)
	type sent struct {
		at     time.Time
		sample bool
		future jetstream.PubAckFuture
	}
	flying := make(chan sent, max(0, j.InFlight-2)) // one more is awaited, one waits for room
	done, late := make(chan struct{}), after(j.Warm+j.For+patience)
	go func() {
		defer close(done)
		for s := range flying {
			select {
			case <-s.future.Ok():
				t.Answered(s.at, s.sample, nil)
			case err := <-s.future.Err():
				t.Answered(s.at, s.sample, err)
			case <-late:
				t.Answered(s.at, s.sample, errNoAnswer)
			}
		}
	}()
	for i := 0; ctx.Err() == nil; i++ {
		s := sent{at: time.Now(), sample: i%16 == 0}
		if s.future, err = js.PublishAsync(j.Queue, body); err != nil {
			break
		}
		flying <- s
	}
	close(flying)
	<-done
	return err
}

// latency publishes one message after another.
func latency(j measure.Job) (measure.Outcome, error) {
	nc, js, err := connect(j, 1)
	if err != nil {
		return measure.Outcome{}, err
	}
	defer nc.Close()
	var t measure.Tally
	return t.Over(j, func(ctx context.Context) error {
		body := measure.Payload(j.Size)
		for ctx.Err() == nil {
			sent := time.Now()
			if _, err := js.Publish(ctx, j.Queue, body); ctx.Err() == nil {
				t.Answered(sent, true, err)
			}
		}
		return nil
	})
}

// steady publishes at a rate and times each message from when it was due.
func steady(j measure.Job) (measure.Outcome, error) {
	nc, js, err := connect(j, 100_000)
	if err != nil {
		return measure.Outcome{}, err
	}
	defer nc.Close()
	var t measure.Tally
	return t.Over(j, func(ctx context.Context) error {
		type sent struct {
			due    time.Time
			future jetstream.PubAckFuture
		}
		flying := make(chan sent, 100_000)
		done, late := make(chan struct{}), after(j.Warm+j.For+patience)
		go func() {
			defer close(done)
			for s := range flying {
				select {
				case <-s.future.Ok():
					t.Answered(s.due, true, nil)
				case err := <-s.future.Err():
					t.Answered(s.due, true, err)
				case <-late:
					t.Answered(s.due, true, errNoAnswer)
				}
			}
		}()
		defer func() { close(flying); <-done }()
		body := measure.Payload(j.Size)
		return measure.Pace(ctx, j.Rate, func(_ int, due time.Time) error {
			f, err := js.PublishAsync(j.Queue, body)
			if err == nil {
				flying <- sent{due, f}
			}
			return err
		})
	})
}

// drain takes what is stored with several connections that share one durable consumer, and acknowledges each message by
// itself. The time is from the first delivery until the last acknowledgement has been handed to the server.
func drain(j measure.Job) (measure.Outcome, error) {
	ctx, cancel := context.WithTimeout(context.Background(), j.Warm+j.For+3*patience)
	defer cancel()
	if err := createConsumer(ctx, j); err != nil {
		return measure.Outcome{}, err
	}
	var taken, failed, began atomic.Int64
	done := make(chan struct{})
	for range j.Consumers {
		nc, js, err := connect(j, 1)
		if err != nil {
			return measure.Outcome{}, err
		}
		defer nc.Close()
		c, err := js.Consumer(ctx, streamName, j.Group)
		if err != nil {
			return measure.Outcome{}, err
		}
		cc, err := c.Consume(func(m jetstream.Msg) {
			if began.Load() == 0 {
				began.CompareAndSwap(0, time.Now().UnixNano())
			}
			if m.Ack() != nil {
				failed.Add(1)
			}
			if taken.Add(1) == j.Count {
				close(done)
			}
		}, jetstream.PullMaxMessages(j.Prefetch))
		if err != nil {
			return measure.Outcome{}, err
		}
		defer cc.Stop()
		defer nc.Flush()
	}
	select {
	case <-done:
	case <-ctx.Done():
		return measure.Outcome{}, fmt.Errorf("%d of %d messages in time", taken.Load(), j.Count)
	}
	return measure.Outcome{Messages: taken.Load(), Total: taken.Load(), Errors: failed.Load(), Seconds: time.Since(time.Unix(0, began.Load())).Seconds()}, nil
}

// createConsumer makes the durable consumer, on three servers like its stream.
func createConsumer(ctx context.Context, j measure.Job) error {
	nc, js, err := connect(j, 1)
	if err != nil {
		return err
	}
	defer nc.Close()
	_, err = js.CreateOrUpdateConsumer(ctx, streamName, jetstream.ConsumerConfig{
		Durable: j.Group, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: j.Consumers * j.Prefetch, DeliverPolicy: jetstream.DeliverAllPolicy,
	})
	return err
}
