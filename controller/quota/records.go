package quota

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

const (
	// readFor bounds how long a question for leases waits for rows.
	readFor = 500 * time.Millisecond
	// readAgain is when a row is tried again that could not be read.
	readAgain = 2 * time.Second
	// rowsAtOnce are read side by side when they cannot be read in one call.
	rowsAtOnce = 16
)

// records are rows of one table as they were read last. A row that cannot be read holds up no other row: it counts as
// it was before. Safe for concurrent use.
type records[T any] struct {
	table metadata.Table
	every time.Duration // a row is read again, if it is asked for
	mu    struct {
		sync.Mutex
		rows map[metadata.Key]*record[T]
	}
}

type record[T any] struct {
	value T
	there bool // false: there is no such row
	known bool // it was read once
	next  time.Time
	used  time.Time
	err   error // of the last try
}

func newRecords[T any](table metadata.Table, every time.Duration) *records[T] {
	r := &records[T]{table: table, every: every}
	r.mu.rows = make(map[metadata.Key]*record[T])
	return r
}

// read answers the records that are there, and the keys of rows of which that is not known, with the reason.
func (r *records[T]) read(ctx context.Context, store metadata.Store, keys []metadata.Key, now time.Time) (there map[metadata.Key]T, unknown map[metadata.Key]error) {
	if due := r.due(keys, now); len(due) > 0 {
		ctx, cancel := context.WithTimeout(ctx, readFor)
		defer cancel()
		r.fetch(ctx, store, due, now)
	}
	there, unknown = make(map[metadata.Key]T, len(keys)), make(map[metadata.Key]error)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range keys {
		switch row := r.mu.rows[k]; {
		case row == nil || !row.known:
			unknown[k] = core.Errorf(core.CodeUnavailable, "row %s of table %s was not read in time", k.Row, r.table.Name)
			if row != nil && row.err != nil {
				unknown[k] = row.err
			}
		case row.there:
			there[k] = row.value
		}
	}
	return there, unknown
}

// due are the rows that are to be read now. Of several calls at a time one reads a row that is known.
func (r *records[T]) due(keys []metadata.Key, now time.Time) (due []metadata.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range keys {
		row := r.mu.rows[k]
		if row == nil {
			row = &record[T]{}
			r.mu.rows[k] = row
		}
		row.used = now
		if wait := row.next.Sub(now); wait > 0 && wait <= max(r.every, readAgain) { // else the clock was set back
			continue
		}
		if row.known {
			row.next = now.Add(r.every)
		}
		due = append(due, k)
	}
	return due
}

// fetch reads rows in one call, and each by itself if the call fails.
func (r *records[T]) fetch(ctx context.Context, store metadata.Store, keys []metadata.Key, now time.Time) {
	all, cancel := context.WithTimeout(ctx, readFor/2)
	rows, err := metadata.GetRows(all, store, r.table, keys, metadata.One)
	cancel()
	if err == nil {
		found := make(map[metadata.Key]metadata.Row, len(rows))
		for _, row := range rows {
			found[row.Key] = row
		}
		for _, k := range keys {
			if row, ok := found[k]; ok {
				r.set(k, row, nil, now)
			} else {
				r.set(k, row, metadata.NoRow(r.table, k), now)
			}
		}
		return
	}
	var reads errgroup.Group
	reads.SetLimit(rowsAtOnce)
	for _, k := range keys {
		if ctx.Err() != nil {
			break // the others are tried the next time
		}
		reads.Go(func() error {
			row, err := store.Get(ctx, r.table, k, metadata.One)
			r.set(k, row, err, now)
			return nil
		})
	}
	_ = reads.Wait()
}

func (r *records[T]) set(k metadata.Key, row metadata.Row, err error, now time.Time) {
	var v T
	there := err == nil
	if there {
		v, err = metadata.Decode[T](r.table, row)
	} else if core.CodeOf(err) == core.CodeNotFound {
		err = nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.mu.rows[k]
	if x == nil { // it was forgotten meanwhile
		x = &record[T]{used: now}
		r.mu.rows[k] = x
	}
	if x.err = err; err != nil {
		x.next = now.Add(readAgain)
		return
	}
	x.value, x.there, x.known, x.next = v, there, true, now.Add(r.every)
}

// forget drops the rows that nobody has asked for in a while.
func (r *records[T]) forget(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, row := range r.mu.rows {
		if now.Sub(row.used) > forgetAfter {
			delete(r.mu.rows, k)
		}
	}
}
