package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/columbamq/columba/bench/measure"
)

const (
	replicas  = 3
	groupName = "bench"
	patience  = 60 * time.Second // for a cluster to form, and for the last answers
)

// driver speaks to the servers of one kind.
type driver interface {
	// create makes a queue with three replicas. The cluster may still be electing: create tries until ctx ends.
	create(ctx context.Context, queue string) error
	// group makes the group that gets all messages of the queue from the first one on. Rows without consumers do without
	// it: some brokers take longer to publish where somebody may consume.
	group(ctx context.Context, queue string) error
	// publisher opens a connection of its own. At most as many messages as the job says have no answer.
	publisher(ctx context.Context, j measure.Job) (publisher, error)
	// consume takes messages of the group over a connection of its own until ctx ends, and acknowledges each by itself.
	// Acknowledgements are with the servers when it returns.
	consume(ctx context.Context, j measure.Job, got func(body []byte)) error
	// left is how many messages the group has not acknowledged, while nobody consumes.
	left(ctx context.Context, queue string) (int64, error)
}

// publisher publishes to one queue. Not safe for concurrent use.
type publisher interface {
	// publish returns when the message is acknowledged.
	publish(ctx context.Context, body []byte) error
	// start sends a message; it waits while too many have no answer. answered is called once, unless start fails.
	start(ctx context.Context, body []byte, answered func(error)) error
	// close waits for the answers that are missing.
	close(ctx context.Context) error
}

// drivers by the name of their kind; the argument is the addresses of the servers.
var drivers = map[string]func(addrs []string) driver{
	"columba":  newColumba,
	"nats":     newNATS,
	"kafka":    newKafka,
	"rabbitmq": newRabbitMQ,
}

// driverOf is the driver of a kind for servers at addresses that are separated by commas.
func driverOf(kind, addrs string) (driver, error) {
	if f := drivers[kind]; f != nil {
		return f(strings.Split(addrs, ",")), nil
	}
	return nil, fmt.Errorf("no driver %q", kind)
}

var errNoAnswer = errors.New("no answer")

// again calls f until it succeeds or ctx ends.
func again(ctx context.Context, f func(context.Context) error) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		try, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := f(try)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// lane awaits the answers of one publisher in the order in which its messages were sent, which costs least. It is for
// clients that give a future for each message.
type lane[F any] struct {
	flying chan flight[F]
	done   chan struct{}
}

type flight[F any] struct {
	future   F
	answered func(error)
}

// newLane has at most inFlight messages without an answer; await gives the answer of one.
func newLane[F any](inFlight int, await func(F) error) *lane[F] {
	// One more is awaited, and one waits for room.
	l := &lane[F]{flying: make(chan flight[F], max(0, inFlight-2)), done: make(chan struct{})}
	go func() { // ends with close
		defer close(l.done)
		for f := range l.flying {
			f.answered(await(f.future))
		}
	}()
	return l
}

func (l *lane[F]) add(future F, answered func(error)) { l.flying <- flight[F]{future, answered} }

// close waits until all are answered.
func (l *lane[F]) close(ctx context.Context) error {
	close(l.flying)
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return errNoAnswer
	}
}
