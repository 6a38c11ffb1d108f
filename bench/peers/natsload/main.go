// Command natsload drives a NATS JetStream stream the way bench's own workers drive Columba: the same job, the same outcome, as JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// job is what a worker does; the fields are those of bench's jobs.
type job struct {
	Kind      string // create, produce, latency, steady
	Addr      string // servers, comma separated
	Queue     string // subject; the stream has the name S
	Size      int
	Warm      time.Duration
	For       time.Duration
	Producers int
	InFlight  int
	Rate      int
}

type outcome struct {
	Messages int64
	Seconds  float64
	Errors   int64
	P50, P99 float64 // ms
	Total    int64
	Gap      float64 // seconds
}

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
	var j job
	err := errors.New("give one argument: the job as JSON")
	if len(os.Args) == 2 {
		err = json.Unmarshal([]byte(os.Args[1]), &j)
	}
	var o outcome
	if err == nil {
		o, err = run(j)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "natsload:", err)
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(o)
}

func run(j job) (outcome, error) {
	switch j.Kind {
	case "create":
		return outcome{}, create(j)
	case "produce":
		return produce(j)
	case "latency":
		return latency(j)
	case "steady":
		return steady(j)
	}
	return outcome{}, fmt.Errorf("no job %q", j.Kind)
}

func connect(j job, inFlight int) (*nats.Conn, jetstream.JetStream, error) {
	nc, err := nats.Connect(j.Addr)
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(inFlight))
	return nc, js, err
}

// create makes the stream: three replicas on disk. The cluster may still be electing, so it is tried for a while.
func create(j job) error {
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

// tally is what all producers measured.
type tally struct {
	acked, failed atomic.Int64
	counting      atomic.Bool
	mu            sync.Mutex
	latencies     []time.Duration
	last          time.Time
	gap           time.Duration
}

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
	defer t.mu.Unlock()
	t.latencies = append(t.latencies, now.Sub(sent))
	if !t.last.IsZero() {
		t.gap = max(t.gap, now.Sub(t.last))
	}
	t.last = now
}

func (t *tally) over(j job, f func(ctx context.Context) error) (outcome, error) {
	ctx, cancel := context.WithTimeout(context.Background(), j.Warm+j.For)
	defer cancel()
	var before int64
	var began time.Time
	time.AfterFunc(j.Warm, func() {
		before, began = t.acked.Load(), time.Now()
		t.counting.Store(true)
	})
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
	slices.Sort(t.latencies)
	at := func(q float64) float64 {
		if len(t.latencies) == 0 {
			return 0
		}
		return float64(t.latencies[int(q*float64(len(t.latencies)-1))].Microseconds()) / 1e3
	}
	o.Total, o.Errors, o.P50, o.P99, o.Gap = t.acked.Load(), t.failed.Load(), at(0.5), at(0.99), t.gap.Seconds()
	return o, nil
}

func produce(j job) (outcome, error) {
	var t tally
	return t.over(j, func(ctx context.Context) error {
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

// produceOne keeps up to InFlight messages without an answer. A goroutine awaits the answers in order, which costs least.
func produceOne(ctx context.Context, j job, t *tally) error {
	nc, js, err := connect(j, j.InFlight+1)
	if err != nil {
		return err
	}
	defer nc.Close()
	body := payload(j.Size)
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
				t.answered(s.at, s.sample, nil)
			case err := <-s.future.Err():
				t.answered(s.at, s.sample, err)
			case <-late:
				t.answered(s.at, s.sample, errNoAnswer)
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
func latency(j job) (outcome, error) {
	nc, js, err := connect(j, 1)
	if err != nil {
		return outcome{}, err
	}
	defer nc.Close()
	var t tally
	return t.over(j, func(ctx context.Context) error {
		body := payload(j.Size)
		for ctx.Err() == nil {
			sent := time.Now()
			if _, err := js.Publish(ctx, j.Queue, body); ctx.Err() == nil {
				t.answered(sent, true, err)
			}
		}
		return nil
	})
}

// steady publishes at a rate and times each message from when it was due.
func steady(j job) (outcome, error) {
	nc, js, err := connect(j, 100_000)
	if err != nil {
		return outcome{}, err
	}
	defer nc.Close()
	var t tally
	return t.over(j, func(ctx context.Context) error {
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
					t.answered(s.due, true, nil)
				case err := <-s.future.Err():
					t.answered(s.due, true, err)
				case <-late:
					t.answered(s.due, true, errNoAnswer)
				}
			}
		}()
		defer func() { close(flying); <-done }()
		body := payload(j.Size)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		began, n := time.Now(), 0
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
			for ; n < int(time.Since(began).Seconds()*float64(j.Rate)); n++ {
				f, err := js.PublishAsync(j.Queue, body)
				if err != nil {
					return err
				}
				flying <- sent{began.Add(time.Duration(float64(n) / float64(j.Rate) * 1e9)), f}
			}
		}
		return nil
	})
}

// payload is the same text as bench's.
func payload(size int) []byte {
	var b []byte
	for i := 0; len(b) < size; i++ {
		b = fmt.Appendf(b, "%x,", uint32(i)*2654435761)
	}
	return b[:size]
}
