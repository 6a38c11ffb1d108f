package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/columbamq/columba/bench/measure"
	"github.com/columbamq/columba/core"
)

const (
	queuePath = "/bench/queue"
	groupName = "group"

	defaultLock = 0 // the server's
)

// warm is the part of a rate's run that is not counted.
const warm = 500 * time.Millisecond

// measured is one repetition of the comparison of rates, messages per second.
type measured struct {
	publish, alone, consume    float64 // 1 KiB
	small, smallConsume        float64 // 100 bytes
	batchRecords, batchesDepth float64 // of 1 KiB messages, as the store saw them
	p50                        float64 // ms, at the full rate
	publishCPU, consumeCPU     float64 // µs a message, server and client
	smallCPU, smallConsumeCPU  float64
}

// rates compares, in each repetition one after another on new directories: publishing, the log alone with the same
// batches, consuming what was published, and the same with small messages.
func (r *rig) rates() error {
	var all []measured
	for i := range r.pairs {
		m, err := r.ratesOnce(fmt.Sprint("rates", i))
		if err != nil {
			return err
		}
		all = append(all, m)
		r.report.say("repetition %d: publish %.0f/s (%.0f records a batch, %.1f batches under way, p50 %.1f ms), log alone %.0f/s, consume %.0f/s; 100 bytes: publish %.0f/s, consume %.0f/s; CPU of server and client, µs a message: %.2f, %.2f; %.2f, %.2f",
			i+1, m.publish, m.batchRecords, m.batchesDepth, m.p50, m.alone, m.consume, m.small, m.smallConsume,
			m.publishCPU, m.consumeCPU, m.smallCPU, m.smallConsumeCPU)
	}
	of := func(f func(measured) float64) float64 {
		var v []float64
		for _, m := range all {
			v = append(v, f(m))
		}
		return median(v)
	}
	cost := func(f func(measured) float64) string {
		return fmt.Sprintf("%.2f µs of CPU time a message, server and client", of(f))
	}
	publish := of(func(m measured) float64 { return m.publish })
	r.report.info("publish, 1 KiB", publish, "msg/s", fmt.Sprintf("%.0f MB/s; fsync before each acknowledgement; ", publish*1024/1e6)+
		cost(func(m measured) float64 { return m.publishCPU }))
	r.report.info("log alone, 1 KiB", of(func(m measured) float64 { return m.alone }), "msg/s",
		fmt.Sprintf("batches of %.0f records, %.0f at a time", of(func(m measured) float64 { return m.batchRecords }), of(func(m measured) float64 { return m.batchesDepth })))
	r.report.info("consume, 1 KiB, one ack each", of(func(m measured) float64 { return m.consume }), "msg/s",
		"a backlog, one consumer; "+cost(func(m measured) float64 { return m.consumeCPU }))
	r.report.info("publish, 100 bytes", of(func(m measured) float64 { return m.small }), "msg/s", cost(func(m measured) float64 { return m.smallCPU }))
	r.report.info("consume, 100 bytes, one ack each", of(func(m measured) float64 { return m.smallConsume }), "msg/s",
		"a backlog, one consumer; "+cost(func(m measured) float64 { return m.smallConsumeCPU }))
	r.report.atLeast("publish ÷ log alone, 1 KiB", of(func(m measured) float64 { return m.publish / m.alone }), 0.5, "×")
	r.report.atLeast("publish 100 bytes ÷ publish 1 KiB, messages", of(func(m measured) float64 { return m.small / m.publish }), 5, "×")
	r.report.atLeast("consume ÷ publish, 1 KiB", of(func(m measured) float64 { return m.consume / m.publish }), 1, "×")
	r.report.atLeast("consume ÷ publish, 100 bytes", of(func(m measured) float64 { return m.smallConsume / m.small }), 1, "×")
	return nil
}

func (r *rig) ratesOnce(name string) (m measured, err error) {
	large, err := r.publishAndConsume(name+"-1k", 1024)
	if err != nil {
		return m, err
	}
	m = large
	dir := filepath.Join(r.dir, name+"-log")
	alone, err := r.worker(measure.Job{
		Kind: "log", Dir: dir, Size: 1024, Warm: warm, For: r.slice,
		Records: max(1, int(math.Round(m.batchRecords))), Depth: max(1, int(math.Round(m.batchesDepth))),
	})
	os.RemoveAll(dir)
	if err != nil {
		return m, err
	}
	m.alone = alone.PerSecond()
	small, err := r.publishAndConsume(name+"-100", 100)
	m.small, m.smallConsume, m.smallCPU, m.smallConsumeCPU = small.publish, small.consume, small.publishCPU, small.consumeCPU
	return m, err
}

// publishAndConsume fills a queue of a new server and then empties it.
func (r *rig) publishAndConsume(name string, size int) (m measured, err error) {
	s, err := r.server(name)
	if err != nil {
		return m, err
	}
	defer s.remove()
	if err := r.createQueue(s); err != nil {
		return m, err
	}
	before, err := s.metrics(r.ctx)
	if err != nil {
		return m, err
	}
	published, publishCPU, err := r.loaded(s, measure.Job{Kind: "publish", Addr: s.addr, Queue: queuePath, Size: size, Warm: warm, For: r.slice})
	if err != nil {
		return m, err
	}
	after, err := s.metrics(r.ctx)
	if err != nil {
		return m, err
	}
	count := after["columba_inputhost_messages_total"] - before["columba_inputhost_messages_total"]
	batches := after["columba_storehost_appends_total"] - before["columba_storehost_appends_total"]
	waited := after["columba_storehost_append_seconds_sum"] - before["columba_storehost_append_seconds_sum"]
	m.publish, m.p50, m.publishCPU = published.PerSecond(), published.P50, publishCPU
	m.batchRecords = count / batches
	m.batchesDepth = waited / (warm + r.slice).Seconds() // Little's law

	if err := r.createGroup(s, defaultLock); err != nil {
		return m, err
	}
	consumed, consumeCPU, err := r.loaded(s, measure.Job{Kind: "consume", Addr: s.addr, Queue: queuePath, Group: groupName, Count: int64(count)})
	if err != nil {
		return m, err
	}
	m.consume, m.consumeCPU = consumed.PerSecond(), consumeCPU
	return m, r.awaitAcks(s, count)
}

// loaded does a job and returns also what it cost: microseconds of CPU time a message, of the server and the worker.
func (r *rig) loaded(s *server, j measure.Job) (o measure.Outcome, cpu float64, err error) {
	before, err := s.cpu()
	if err != nil {
		return o, 0, err
	}
	if o, err = r.worker(j); err != nil {
		return o, 0, err
	}
	after, err := s.cpu()
	return o, 1e6 * (after - before + o.CPU) / float64(max(1, o.Total)), err
}

// awaitAcks fails unless the server has counted every acknowledgement.
func (r *rig) awaitAcks(s *server, count float64) error {
	name := fmt.Sprintf("columba_outputhost_group_events_total{event=\"acked\",group=%q,queue=%q}", groupName, queuePath)
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		m, err := s.metrics(r.ctx)
		if err != nil {
			return err
		}
		if m[name] == count {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the server counts %.0f acknowledgements of %.0f messages", m[name], count)
		}
	}
}

func (r *rig) createQueue(s *server) error {
	return r.admin(s, func(ctx context.Context, a admin) error {
		_, err := a.CreateQueue(ctx, core.QueueSpec{Path: queuePath})
		return err
	})
}

func (r *rig) createGroup(s *server, lock time.Duration) error {
	return r.admin(s, func(ctx context.Context, a admin) error {
		_, err := a.CreateGroup(ctx, core.GroupSpec{Queue: queuePath, Name: groupName, Start: core.Start{Mode: core.StartEarliest}, LockTimeout: lock})
		return err
	})
}
