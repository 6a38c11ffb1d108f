package extentlog

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// merger merges the small tables that each flush makes of rows. The database would do so by itself, but together with
// tables of batches beside them, which then take their space twice for a while.
type merger struct {
	wake   chan struct{} // capacity 1
	all    atomic.Bool   // the next merge takes tables of the last level, too
	merged int64         // tables of the first level behind the last merge; of the keeper
	last   int64         // … and of the last level behind the last merge of all
}

// rowRanges are the keys that are neither batches nor indexes of timers.
var rowRanges = []pebble.KeyRange{
	{Start: []byte{0}, End: []byte{prefixBatch}},
	{Start: []byte{prefixBatch + 1}, End: []byte{prefixDue}},
	{Start: []byte{prefixDue + 1}, End: []byte{0xff}},
}

// look has rows merged when there are so many more tables than after the last time. A merge adds to the last level what
// has no place in its tables: tombstones of newer extents than all before.
func (m *merger) look(first, last, most int64) {
	m.merged, m.last = min(m.merged, first), min(m.last, last)
	if last-m.last >= most {
		m.last = last
		m.all.Store(true)
	}
	if first-m.merged >= most {
		m.merged = first
		notify(m.wake)
	}
}

// keepMerging merges tables of rows until the log closes.
func (e *Engine) keepMerging() {
	ctx, cancel := context.WithCancel(context.Background())
	e.calls.Go(func() {
		<-e.stop
		cancel()
	})
	for {
		select {
		case <-e.merger.wake:
		case <-e.stop:
			return
		case <-e.failed:
			return
		}
		if err := e.mergeRows(ctx); err != nil && ctx.Err() == nil && e.refusing() == nil {
			e.log.Error("tables of rows cannot be merged: they take more space, and slow down removals", "err", err)
		}
	}
}

func (e *Engine) mergeRows(ctx context.Context) error {
	done, err := e.reading() // keeps the database open
	if err != nil {
		return err
	}
	defer done()
	if e.merger.all.Swap(false) {
		if err := e.spanRows(); err != nil {
			return err
		}
	}
	for _, r := range rowRanges {
		if err := e.refusing(); err != nil {
			return err
		}
		if err := e.guarded(func() error { return e.db.Compact(ctx, r.Start, r.End, false) }); err != nil {
			return err
		}
	}
	return nil
}

// spanRows has the next merge take all tables of rows: deletions of keys that nobody has, at both ends of each range,
// make a table that overlaps all of them.
func (e *Engine) spanRows() error {
	b := e.db.NewBatch()
	defer b.Close()
	for _, r := range rowRanges {
		end := []byte{r.End[0] - 1, 0xff}
		if err := errors.Join(b.Delete(r.Start, nil), b.Delete(end, nil)); err != nil {
			return err
		}
	}
	return e.guarded(func() error { return e.db.Apply(b, pebble.NoSync) })
}
