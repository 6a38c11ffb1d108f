package main

import (
	"context"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/columbamq/columba/bench/measure"
)

// natsDriver drives NATS JetStream: a stream of a queue's name, and a durable pull consumer with explicit
// acknowledgements.
type natsDriver struct{ addr string }

func newNATS(addrs []string) driver { return &natsDriver{strings.Join(addrs, ",")} }

func (d *natsDriver) connect(inFlight int) (*nats.Conn, jetstream.JetStream, error) {
	nc, err := nats.Connect(d.addr)
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(inFlight))
	if err != nil {
		nc.Close()
	}
	return nc, js, err
}

func (d *natsDriver) create(ctx context.Context, queue string) error {
	return again(ctx, func(ctx context.Context) error {
		nc, js, err := d.connect(1)
		if err != nil {
			return err
		}
		defer nc.Close()
		_, err = js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
			Name: queue, Subjects: []string{queue}, Storage: jetstream.FileStorage, Replicas: replicas,
		})
		return err
	})
}

func (d *natsDriver) group(ctx context.Context, queue string) error {
	return again(ctx, func(ctx context.Context) error {
		nc, js, err := d.connect(1)
		if err != nil {
			return err
		}
		defer nc.Close()
		_, err = js.CreateOrUpdateConsumer(ctx, queue, jetstream.ConsumerConfig{
			Durable: groupName, AckPolicy: jetstream.AckExplicitPolicy, DeliverPolicy: jetstream.DeliverAllPolicy,
			MaxAckPending: consumers * prefetch,
		})
		return err
	})
}

func (d *natsDriver) left(ctx context.Context, queue string) (int64, error) {
	nc, js, err := d.connect(1)
	if err != nil {
		return 0, err
	}
	defer nc.Close()
	c, err := js.Consumer(ctx, queue, groupName)
	if err != nil {
		return 0, err
	}
	i, err := c.Info(ctx)
	if err != nil {
		return 0, err
	}
	return int64(i.NumPending) + int64(i.NumAckPending), nil
}

type natsPublisher struct {
	nc    *nats.Conn
	js    jetstream.JetStream
	queue string
	lane  *lane[jetstream.PubAckFuture]
}

func (d *natsDriver) publisher(_ context.Context, j measure.Job) (publisher, error) {
	nc, js, err := d.connect(j.InFlight + 1)
	if err != nil {
		return nil, err
	}
	late := make(chan struct{})
	time.AfterFunc(j.Warm+j.For+patience, func() { close(late) })
	l := newLane(j.InFlight, func(f jetstream.PubAckFuture) error {
		select {
		case <-f.Ok():
			return nil
		case err := <-f.Err():
			return err
		case <-late:
			return errNoAnswer
		}
	})
	return &natsPublisher{nc, js, j.Queue, l}, nil
}

func (p *natsPublisher) publish(ctx context.Context, body []byte) error {
	_, err := p.js.Publish(ctx, p.queue, body)
	return err
}

func (p *natsPublisher) start(_ context.Context, body []byte, answered func(error)) error {
	f, err := p.js.PublishAsync(p.queue, body)
	if err == nil {
		p.lane.add(f, answered)
	}
	return err
}

func (p *natsPublisher) close(ctx context.Context) error {
	defer p.nc.Close()
	return p.lane.close(ctx)
}

func (d *natsDriver) consume(ctx context.Context, j measure.Job, got func([]byte)) error {
	nc, js, err := d.connect(1)
	if err != nil {
		return err
	}
	defer nc.Close()
	c, err := js.Consumer(ctx, j.Queue, groupName)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	cc, err := c.Consume(func(m jetstream.Msg) {
		got(m.Data())
		if err := m.Ack(); err != nil {
			select {
			case failed <- err:
			default:
			}
		}
	}, jetstream.PullMaxMessages(j.Prefetch))
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	cc.Stop()
	<-cc.Closed()
	if err != nil {
		return err
	}
	return nc.FlushTimeout(patience)
}
