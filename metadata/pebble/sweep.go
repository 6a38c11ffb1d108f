package pebble

import (
	"bytes"
	"context"
	"time"

	engine "github.com/cockroachdb/pebble/v2"
)

const (
	sweepEvery = 10 * time.Minute
	sweepPage  = 1000 // rows of one durable write
)

// sweepUntilClosed forgets removed and expired rows whose grace is over.
func (s *Store) sweepUntilClosed() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		for {
			n, err := s.sweep(s.ctx, now())
			if err != nil || n < sweepPage {
				break // what failed is found again at the next tick; the engine logs its own errors
			}
		}
	}
}

// sweep forgets up to sweepPage rows that are due at that time, and says how many it looked at.
func (s *Store) sweep(ctx context.Context, at time.Time) (int, error) {
	due, err := s.due(at)
	if err != nil || len(due) == 0 {
		return 0, err
	}
	rows := make([][]byte, len(due))
	for i, index := range due {
		rows[i] = sweptRow(index)
	}
	err = s.change(ctx, rows, func(b *engine.Batch) error {
		for i, index := range due {
			cell, err := s.cell(rows[i])
			if err != nil {
				return err
			}
			if when, ok := cell.SweepAt(); ok && bytes.Equal(sweepKey(when, rows[i]), index) {
				if err := b.Delete(rows[i], nil); err != nil {
					return s.diskError(err)
				}
			}
			if err := b.Delete(index, nil); err != nil {
				return s.diskError(err)
			}
		}
		return nil
	}, func() {})
	return len(due), err
}

// due are the index keys of the rows to forget.
func (s *Store) due(at time.Time) (due [][]byte, err error) {
	iter, err := s.db.NewIter(&engine.IterOptions{
		LowerBound: []byte{prefixSweep},
		UpperBound: sweepKey(at, nil),
	})
	if err != nil {
		return nil, s.diskError(err)
	}
	defer func() {
		if closing := s.diskError(iter.Close()); err == nil {
			err = closing
		}
	}()
	for valid := iter.First(); valid && len(due) < sweepPage; valid = iter.Next() {
		due = append(due, bytes.Clone(iter.Key()))
	}
	return due, s.diskError(iter.Error())
}
