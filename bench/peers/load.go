package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/columbamq/columba/bench/machine"
	"github.com/columbamq/columba/bench/measure"
)

// Kinds of jobs.
const (
	kindPublish = "publish" // as fast as it goes
	kindOne     = "one"     // one message after another
	kindSteady  = "steady"  // at a rate, each message timed from when it was due
	kindConsume = "consume" // what is stored
	kindFlow    = "flow"    // steady, with consumers
)

const (
	sampleEvery   = 16      // messages share one look at the clock, while they are published as fast as it goes
	steadyPending = 100_000 // messages without an answer, at a rate: more than ever wait
)

// loads are what a worker can do, by the kind of the job.
var loads = map[string]func(driver, measure.Job) (measure.Outcome, error){
	kindPublish: publishAll, kindOne: oneInFlight, kindSteady: steady, kindConsume: consumeAll, kindFlow: flow,
}

// work does the job that the argument describes, with the driver of that kind, and prints its outcome.
func work(kind, arg string) error {
	var j measure.Job
	if err := json.Unmarshal([]byte(arg), &j); err != nil {
		return fmt.Errorf("job: %w", err)
	}
	d, err := driverOf(kind, j.Addr)
	if err != nil {
		return err
	}
	do := loads[j.Kind]
	if do == nil {
		return fmt.Errorf("no job %q", j.Kind)
	}
	o, err := do(d, j)
	if err != nil {
		return err
	}
	o.CPU = machine.OwnCPU()
	return json.NewEncoder(os.Stdout).Encode(o)
}

// publishAll publishes as fast as it goes from several producers, each with a connection and a window of its own.
func publishAll(d driver, j measure.Job) (measure.Outcome, error) {
	pubs, err := publishers(d, j, j.Producers)
	if err != nil {
		return measure.Outcome{}, err
	}
	var t measure.Tally
	var bad refusal
	o, err := t.Over(j, func(ctx context.Context) error {
		errs := make([]error, len(pubs))
		var wg sync.WaitGroup
		for i, p := range pubs {
			wg.Go(func() {
				body := measure.Payload(j.Size)
				for n := 0; ctx.Err() == nil; n++ {
					sent, sample := time.Now(), n%sampleEvery == 0
					err := p.start(ctx, body, func(err error) {
						bad.note(err)
						t.Answered(sent, sample, err)
					})
					if err != nil && ctx.Err() == nil {
						errs[i] = err
						break
					}
				}
				errs[i] = errors.Join(errs[i], closing(p))
			})
		}
		wg.Wait()
		return errors.Join(errs...)
	})
	return o, errors.Join(err, bad.first())
}

// refusal keeps the first error of a message: a load that has one fails. Safe for concurrent use.
type refusal struct{ err atomic.Pointer[error] }

func (r *refusal) note(err error) {
	if err != nil {
		r.err.CompareAndSwap(nil, &err)
	}
}

func (r *refusal) first() error {
	if err := r.err.Load(); err != nil {
		return fmt.Errorf("a message failed: %w", *err)
	}
	return nil
}

func publishers(d driver, j measure.Job, n int) (pubs []publisher, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for range n {
		p, err := d.publisher(ctx, j)
		if err != nil {
			return nil, err // the process ends
		}
		pubs = append(pubs, p)
	}
	return pubs, nil
}

func closing(p publisher) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return p.close(ctx)
}

func oneInFlight(d driver, j measure.Job) (measure.Outcome, error) {
	j.InFlight = 1
	pubs, err := publishers(d, j, 1)
	if err != nil {
		return measure.Outcome{}, err
	}
	var t measure.Tally
	return t.Over(j, func(ctx context.Context) error {
		// The last message has time for its answer: a client may give up early when its context is about to end.
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), j.Warm+j.For+patience)
		defer cancel()
		body := measure.Payload(j.Size)
		for ctx.Err() == nil {
			sent := time.Now()
			if err := pubs[0].publish(last, body); err != nil {
				return err
			}
			t.Answered(sent, true, nil)
		}
		return closing(pubs[0])
	})
}

// steady starts messages when they are due, whatever became of those before.
func steady(d driver, j measure.Job) (measure.Outcome, error) {
	var t measure.Tally
	return atRate(d, j, &t)
}

func atRate(d driver, j measure.Job, t *measure.Tally) (measure.Outcome, error) {
	j.InFlight = steadyPending
	pubs, err := publishers(d, j, 1)
	if err != nil {
		return measure.Outcome{}, err
	}
	text := measure.Payload(j.Size)
	var bad refusal
	o, err := t.Over(j, func(ctx context.Context) error {
		err := measure.Pace(ctx, j.Rate, func(_ int, due time.Time) error {
			body := bytes.Clone(text) // clients keep it until it is answered
			measure.Stamp(body, due)
			err := pubs[0].start(ctx, body, func(err error) {
				bad.note(err)
				t.Answered(due, true, err)
			})
			if ctx.Err() != nil { // the time is up
				return nil
			}
			return err
		})
		return errors.Join(err, closing(pubs[0]))
	})
	return o, errors.Join(err, bad.first())
}

// consumeAll takes what is stored with several consumers of one group. It ends after the messages of the job, or when
// its time has passed since the first delivery. The rate is from there until the last acknowledgement was handed over.
func consumeAll(d driver, j measure.Job) (measure.Outcome, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience+j.For)
	defer cancel()
	var taken, began, ended, counted atomic.Int64
	end := func() {
		if ended.CompareAndSwap(0, time.Now().UnixNano()) {
			counted.Store(taken.Load())
			cancel()
		}
	}
	err := consumeWith(ctx, d, j, func([]byte) {
		if began.Load() == 0 && began.CompareAndSwap(0, time.Now().UnixNano()) {
			time.AfterFunc(j.For, end)
		}
		if taken.Add(1) == j.Count {
			end()
		}
	})
	o := measure.Outcome{Messages: counted.Load(), Total: taken.Load()}
	o.Seconds = time.Duration(ended.Load() - began.Load()).Seconds()
	if err == nil && (o.Messages == 0 || o.Seconds <= 0) {
		err = fmt.Errorf("%d of %d messages in time", o.Messages, j.Count)
	}
	return o, err
}

// consumeWith runs the consumers of the job until ctx ends or one of them fails.
func consumeWith(ctx context.Context, d driver, j measure.Job, got func([]byte)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, j.Consumers)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			if errs[i] = d.consume(ctx, j, got); errs[i] != nil {
				cancel()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// flow publishes at a rate while consumers take.
func flow(d driver, j measure.Job) (measure.Outcome, error) {
	ctx, cancel := context.WithTimeout(context.Background(), j.Warm+j.For+2*patience)
	defer cancel()
	var t measure.Tally
	consumed := make(chan error, 1)
	go func() { consumed <- consumeWith(ctx, d, j, func(body []byte) { t.Delivered(measure.Stamped(body)) }) }()
	o, err := atRate(d, j, &t)
	cancel()
	return o, errors.Join(err, <-consumed)
}
