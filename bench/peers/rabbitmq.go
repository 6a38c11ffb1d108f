package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/columbamq/columba/bench/measure"
)

// rabbitMQ drives quorum queues with publisher confirms.
type rabbitMQ struct {
	addrs []string
	conns atomic.Int64
}

func newRabbitMQ(addrs []string) driver { return &rabbitMQ{addrs: addrs} }

var errRefused = errors.New("the broker refused the message")

// connect goes to the servers in turn.
func (d *rabbitMQ) connect() (*amqp.Connection, *amqp.Channel, error) {
	n := int(d.conns.Add(1)-1) % len(d.addrs)
	conn, err := amqp.Dial("amqp://guest:guest@" + d.addrs[n] + "/")
	if err != nil {
		return nil, nil, err
	}
	ch, err := conn.Channel()
	if err != nil {
		conn.Close()
	}
	return conn, ch, err
}

func (d *rabbitMQ) create(ctx context.Context, queue string) error {
	return again(ctx, func(context.Context) error {
		conn, ch, err := d.connect()
		if err != nil {
			return err
		}
		defer conn.Close()
		args := amqp.Table{"x-queue-type": "quorum", "x-quorum-initial-group-size": replicas}
		_, err = ch.QueueDeclare(queue, true, false, false, false, args)
		return err
	})
}

// group makes nothing: the queue is what consumers share.
func (d *rabbitMQ) group(context.Context, string) error { return nil }

func (d *rabbitMQ) left(_ context.Context, queue string) (int64, error) {
	conn, ch, err := d.connect()
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	return int64(q.Messages), err
}

type rabbitPublisher struct {
	conn  *amqp.Connection
	ch    *amqp.Channel
	queue string
	lane  *lane[*amqp.DeferredConfirmation]
}

func (d *rabbitMQ) publisher(_ context.Context, j measure.Job) (publisher, error) {
	conn, ch, err := d.connect()
	if err != nil {
		return nil, err
	}
	if err := ch.Confirm(false); err != nil {
		conn.Close()
		return nil, err
	}
	closed := conn.NotifyClose(make(chan *amqp.Error, 1))
	l := newLane(j.InFlight, func(f *amqp.DeferredConfirmation) error {
		select {
		case <-f.Done():
			if !f.Acked() {
				return errRefused
			}
			return nil
		case lost := <-closed:
			if lost == nil { // nobody said why
				return errNoAnswer
			}
			return fmt.Errorf("%w: %w", errNoAnswer, lost)
		}
	})
	return &rabbitPublisher{conn, ch, j.Queue, l}, nil
}

func (p *rabbitPublisher) send(body []byte) (*amqp.DeferredConfirmation, error) {
	m := amqp.Publishing{DeliveryMode: amqp.Persistent, Body: body}
	return p.ch.PublishWithDeferredConfirm("", p.queue, false, false, m)
}

func (p *rabbitPublisher) publish(ctx context.Context, body []byte) error {
	f, err := p.send(body)
	if err != nil {
		return err
	}
	ok, err := f.WaitContext(ctx)
	if err == nil && !ok {
		err = errRefused
	}
	return err
}

func (p *rabbitPublisher) start(_ context.Context, body []byte, answered func(error)) error {
	f, err := p.send(body)
	if err == nil {
		p.lane.add(f, answered)
	}
	return err
}

func (p *rabbitPublisher) close(ctx context.Context) error {
	return errors.Join(p.lane.close(ctx), p.conn.Close())
}

func (d *rabbitMQ) consume(ctx context.Context, j measure.Job, got func([]byte)) error {
	conn, ch, err := d.connect()
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := ch.Qos(j.Prefetch, 0, false); err != nil {
		return err
	}
	messages, err := ch.Consume(j.Queue, groupName, false, false, false, false, nil)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case m, ok := <-messages:
			if !ok {
				return errors.New("the broker ended the consumer")
			}
			got(m.Body)
			if err := m.Ack(false); err != nil {
				return err
			}
		}
	}
	cancelled := make(chan error, 1)
	go func() { cancelled <- ch.Cancel(groupName, false) }() // ends when the messages are read that came before
	for range messages {
	}
	// The answer to close comes after all acknowledgements.
	return errors.Join(<-cancelled, ch.Close())
}
