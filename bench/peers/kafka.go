package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/columbamq/columba/bench/measure"
)

// linger of a producer that has many messages in flight, as Kafka's own client has it by default. One that is timed
// sends at once.
const linger = 5 * time.Millisecond

// kafka drives topics of one partition. Its consumers are a share group, since consumer groups acknowledge no message
// by itself.
type kafka struct{ addrs []string }

func newKafka(addrs []string) driver { return &kafka{addrs} }

func (d *kafka) client(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(d.addrs...)}, opts...)...)
}

func (d *kafka) create(ctx context.Context, queue string) error {
	cl, err := d.client()
	if err != nil {
		return err
	}
	defer cl.Close()
	return again(ctx, func(ctx context.Context) error {
		req := kmsg.NewPtrCreateTopicsRequest()
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = queue, 1, replicas
		req.Topics, req.TimeoutMillis = append(req.Topics, topic), 10_000
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			return err
		}
		for _, t := range resp.Topics {
			if err := kerr.ErrorForCode(t.ErrorCode); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
				return err
			}
		}
		return nil
	})
}

// group has the share group begin with the first message; it comes to be with its first consumer.
func (d *kafka) group(ctx context.Context, _ string) error {
	cl, err := d.client()
	if err != nil {
		return err
	}
	defer cl.Close()
	return again(ctx, func(ctx context.Context) error {
		earliest := "earliest"
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		group := kmsg.NewIncrementalAlterConfigsRequestResource()
		group.ResourceType, group.ResourceName = kmsg.ConfigResourceTypeGroupConfig, groupName
		start := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		start.Name, start.Value, start.Op = "share.auto.offset.reset", &earliest, kmsg.IncrementalAlterConfigOpSet
		group.Configs = append(group.Configs, start)
		req.Resources = append(req.Resources, group)
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			return err
		}
		for _, r := range resp.Resources {
			if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
				return fmt.Errorf("settings of the group: %w", err)
			}
		}
		return nil
	})
}

func (d *kafka) left(ctx context.Context, queue string) (int64, error) {
	cl, err := d.client()
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	req := kmsg.NewPtrDescribeShareGroupOffsetsRequest()
	group := kmsg.NewDescribeShareGroupOffsetsRequestGroup()
	group.GroupID = groupName
	shared := kmsg.NewDescribeShareGroupOffsetsRequestGroupTopic()
	shared.Topic, shared.Partitions = queue, []int32{0}
	group.Topics = append(group.Topics, shared)
	req.Groups = append(req.Groups, group)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return 0, err
	}
	if len(resp.Groups) != 1 || len(resp.Groups[0].Topics) != 1 || len(resp.Groups[0].Topics[0].Partitions) != 1 {
		return 0, errors.New("no offsets of the group")
	}
	partition := resp.Groups[0].Topics[0].Partitions[0]
	for _, code := range []int16{resp.Groups[0].ErrorCode, partition.ErrorCode} {
		if err := kerr.ErrorForCode(code); err != nil {
			return 0, err
		}
	}
	if partition.Lag < 0 {
		return 0, errors.New("the broker does not know the lag")
	}
	return partition.Lag, nil
}

type kafkaPublisher struct{ cl *kgo.Client }

func (d *kafka) publisher(_ context.Context, j measure.Job) (publisher, error) {
	wait := linger
	if j.Kind != kindPublish {
		wait = 0
	}
	cl, err := d.client(kgo.DefaultProduceTopic(j.Queue), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(j.InFlight), kgo.ProducerLinger(wait))
	if err != nil {
		return nil, err
	}
	return &kafkaPublisher{cl}, nil
}

func (p *kafkaPublisher) publish(ctx context.Context, body []byte) error {
	return p.cl.ProduceSync(ctx, &kgo.Record{Value: body}).FirstErr()
}

// start gives the client a context that does not end: the end of the time for publishing must not take back what is
// under way.
func (p *kafkaPublisher) start(ctx context.Context, body []byte, answered func(error)) error {
	p.cl.Produce(context.WithoutCancel(ctx), &kgo.Record{Value: body}, func(_ *kgo.Record, err error) { answered(err) })
	return nil
}

func (p *kafkaPublisher) close(ctx context.Context) error {
	defer p.cl.Close()
	return p.cl.Flush(ctx)
}

func (d *kafka) consume(ctx context.Context, j measure.Job, got func([]byte)) error {
	cl, err := d.client(kgo.ConsumeTopics(j.Queue), kgo.ShareGroup(groupName), kgo.ShareMaxRecords(int32(j.Prefetch)))
	if err != nil {
		return err
	}
	defer cl.Close()
	for ctx.Err() == nil {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err0(); ctx.Err() == nil && err != nil {
			return err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			got(r.Value)
			r.Ack(kgo.AckAccept)
		})
	}
	last, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return cl.FlushAcks(last)
}
