package main

import (
	"context"
	"strings"

	"github.com/columbamq/columba/bench/measure"
	"github.com/columbamq/columba/client"
	"github.com/columbamq/columba/core"
)

// columba drives Columba by its own client.
type columba struct{ addr string }

// path of a queue; the first part is its namespace.
func path(queue string) string { return "/bench/" + queue }

func newColumba(addrs []string) driver { return &columba{strings.Join(addrs, ",")} }

func (d *columba) create(ctx context.Context, queue string) error {
	return again(ctx, func(ctx context.Context) error {
		return d.admin(ctx, func(a *client.Admin) error {
			_, err := a.CreateQueue(ctx, core.QueueSpec{Path: path(queue), Replicas: replicas, MinReplicas: replicas - 1})
			return err
		})
	})
}

func (d *columba) group(ctx context.Context, queue string) error {
	return again(ctx, func(ctx context.Context) error {
		return d.admin(ctx, func(a *client.Admin) error {
			_, err := a.CreateGroup(ctx, core.GroupSpec{
				Queue: path(queue), Name: groupName, Start: core.Start{Mode: core.StartEarliest},
			})
			return err
		})
	})
}

func (d *columba) admin(ctx context.Context, f func(*client.Admin) error) error {
	c, err := client.Dial(ctx, d.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	return f(c.Admin())
}

func (d *columba) left(ctx context.Context, queue string) (n int64, err error) {
	err = d.admin(ctx, func(a *client.Admin) error {
		depths, err := a.Depth(ctx, path(queue), groupName)
		for _, p := range depths {
			n += int64(p.Ready + p.InFlight + p.Delayed + p.Blocked + p.Dead)
		}
		return err
	})
	return n, err
}

type columbaPublisher struct {
	c   *client.Client
	pub *client.Publisher
}

func (d *columba) publisher(ctx context.Context, j measure.Job) (publisher, error) {
	c, err := client.Dial(ctx, d.addr)
	if err != nil {
		return nil, err
	}
	pub, err := c.Publisher(ctx, path(j.Queue), client.MaxInFlight(j.InFlight, 256<<20))
	if err != nil {
		c.Close()
		return nil, err
	}
	return &columbaPublisher{c, pub}, nil
}

func (p *columbaPublisher) publish(ctx context.Context, body []byte) error {
	_, err := p.pub.Publish(ctx, client.Message{Body: body})
	return err
}

func (p *columbaPublisher) start(ctx context.Context, body []byte, answered func(error)) error {
	return p.pub.PublishAsync(ctx, client.Message{Body: body}, func(_ client.Receipt, err error) { answered(err) })
}

func (p *columbaPublisher) close(ctx context.Context) error {
	defer p.c.Close()
	return p.pub.Close(ctx)
}

func (d *columba) consume(ctx context.Context, j measure.Job, got func([]byte)) error {
	c, err := client.Dial(ctx, d.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	con, err := c.Consumer(ctx, path(j.Queue), groupName, client.Prefetch(j.Prefetch))
	if err != nil {
		return err
	}
	for m, err := range con.Deliveries(ctx) {
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return err
		}
		got(m.Body)
		if err := m.Ack(); err != nil {
			return err
		}
	}
	last, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := con.Flush(last); err != nil {
		return err
	}
	return con.Close(last)
}
