package main

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/columbamq/columba/bench/measure"
	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/storehost/extentlog"
	"github.com/columbamq/columba/wire"
)

// logAlone appends batches to one extent of a new extent log, with nothing around it, Depth of them without an answer
// at a time.
func logAlone(j measure.Job) (measure.Outcome, error) {
	var o measure.Outcome
	log, err := extentlog.Open(j.Dir, extentlog.Options{Store: "bench", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return o, err
	}
	defer log.Close()
	now := time.Now()
	extent := core.Extent{
		ID: core.ExtentID{ID: core.NewID(now)}, Queue: core.QueueID{ID: core.NewID(now)}, Kind: core.KindLog, Durability: core.DurabilityFsync,
		Input: "bench", InputRun: core.RunID{ID: core.NewID(now)}, Replicas: []core.HostID{"bench"},
	}
	if err := log.Open(extent); err != nil {
		return o, err
	}
	free, err := freeBatches(j)
	if err != nil {
		return o, err
	}
	var stored, failed atomic.Int64
	var before int64
	var began time.Time
	next, sum := core.Seq(1), uint32(0)
	for {
		at := time.Now()
		if began.IsZero() && at.Sub(now) >= j.Warm {
			before, began = stored.Load(), at
		}
		if !began.IsZero() && at.Sub(began) >= j.For && stored.Load() > before { // a sync may take longer than the time
			break
		}
		batch := <-free
		records := batch[wire.BatchHeaderLen:]
		sum = wire.ExtendChecksum(sum, records)
		wire.PutBatchHeader(batch, wire.BatchHeader{Base: next, Count: uint32(j.Records), AppendTime: at.UnixMicro(), Checksum: sum})
		committed := next - 1
		next += core.Seq(j.Records)
		log.Append(extent.ID, batch, committed, func(_ core.Seq, err error) {
			if err != nil {
				failed.Add(1)
			} else {
				stored.Add(int64(j.Records))
			}
			free <- batch
		})
	}
	o.Messages, o.Seconds = stored.Load()-before, time.Since(began).Seconds()
	for range cap(free) {
		<-free
	}
	o.Errors = failed.Load()
	return o, nil
}

// freeBatches makes Depth batches of Records records with room for the header.
func freeBatches(j measure.Job) (chan []byte, error) {
	free := make(chan []byte, j.Depth)
	body := measure.Payload(j.Size)
	for range j.Depth {
		batch := make([]byte, wire.BatchHeaderLen)
		for range j.Records {
			r := wire.Record{ID: core.MessageID{ID: core.NewID(time.Now())}, Payload: body}
			var err error
			if batch, err = wire.AppendRecord(batch, &r); err != nil {
				return nil, err
			}
		}
		free <- batch
	}
	return free, nil
}
