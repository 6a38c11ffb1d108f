package memory

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// Cells is where a store in memory keeps its rows: once, or on several replicas. Safe for concurrent use. Calls are
// checked before; values are the cells' to keep, and those that it answers are not changed.
type Cells interface {
	// Read answers the cell of a row, the zero Cell when there is none.
	Read(t metadata.Table, k metadata.Key, c metadata.Consistency, now time.Time) metadata.Cell
	// List is Store.List.
	List(t metadata.Table, partition, after string, limit int, c metadata.Consistency, now time.Time) (rows []metadata.Row, more bool)
	// Change swaps the cell of a CAS row for that which change makes of it. changed: readers may find another cell, also
	// when there is an error.
	Change(t metadata.Table, k metadata.Key, change func(metadata.Cell) (metadata.Cell, error)) (changed bool, err error)
	// Merge puts the cell of a Put row unless a later one is there, and reports whether readers may find another cell.
	Merge(t metadata.Table, k metadata.Key, next metadata.Cell, c metadata.Consistency, now time.Time) (changed bool)
}

// Frame is a metadata.Store on Cells: it checks calls, makes cells, tells watches, and closes.
type Frame struct {
	cells    Cells
	notifier metadata.Notifier
	versions metadata.Versions
	closing  sync.Once
	closed   chan struct{}
}

var _ metadata.Store = (*Frame)(nil)

// NewFrame makes a store on cells.
func NewFrame(cells Cells) *Frame { return &Frame{cells: cells, closed: make(chan struct{})} }

// Get implements metadata.Store.
func (f *Frame) Get(ctx context.Context, t metadata.Table, k metadata.Key, c metadata.Consistency) (metadata.Row, error) {
	if err := f.ready(ctx, metadata.CheckKey(t, k)); err != nil {
		return metadata.Row{}, err
	}
	now := time.Now()
	cell := f.cells.Read(t, k, c, now)
	if !cell.Live(now) {
		return metadata.Row{}, metadata.NoRow(t, k)
	}
	return ownRow(k, cell), nil
}

// List implements metadata.Store.
func (f *Frame) List(ctx context.Context, t metadata.Table, partition, after string, limit int, c metadata.Consistency) ([]metadata.Row, bool, error) {
	if err := f.ready(ctx, metadata.CheckList(t, partition, after, limit)); err != nil {
		return nil, false, err
	}
	rows, more := f.cells.List(t, partition, after, limit, c, time.Now())
	return rows, more, nil
}

// Insert implements metadata.Store.
func (f *Frame) Insert(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) error {
	return f.change(ctx, t, k, value, func(c metadata.Cell) (metadata.Cell, error) {
		now := time.Now()
		return c.Inserted(t, k, bytes.Clone(value), f.versions.First(now), now)
	})
}

// Update implements metadata.Store.
func (f *Frame) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte, ttl time.Duration) error {
	if err := metadata.CheckUpdate(t, k, value, ttl); err != nil {
		return err
	}
	return f.change(ctx, t, k, value, func(c metadata.Cell) (metadata.Cell, error) {
		return c.Updated(t, k, old, bytes.Clone(value), ttl, time.Now())
	})
}

// Delete implements metadata.Store.
func (f *Frame) Delete(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version) error {
	return f.change(ctx, t, k, nil, func(c metadata.Cell) (metadata.Cell, error) {
		f.versions.Deleted(c.Version)
		return c.Deleted(t, k, old, time.Now())
	})
}

// Put implements metadata.Store.
func (f *Frame) Put(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, at time.Time, ttl time.Duration, c metadata.Consistency) error {
	if err := f.ready(ctx, metadata.CheckPut(t, k, value, at)); err != nil {
		return err
	}
	now := time.Now()
	f.merge(t, k, metadata.Put(bytes.Clone(value), at, ttl, now), c, now)
	return nil
}

// PutAll implements metadata.Store.
func (f *Frame) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, c metadata.Consistency) error {
	for _, r := range rows {
		if err := metadata.CheckPut(t, r.Key, r.Value, r.Written); err != nil {
			return err
		}
	}
	for i, r := range rows {
		if err := f.Put(ctx, t, r.Key, r.Value, r.Written, 0, c); err != nil {
			return metadata.UnstoredFrom(i, len(rows), err)
		}
	}
	return nil
}

// Remove implements metadata.Store.
func (f *Frame) Remove(ctx context.Context, t metadata.Table, k metadata.Key, at time.Time, c metadata.Consistency) error {
	if err := f.ready(ctx, metadata.CheckPut(t, k, nil, at)); err != nil {
		return err
	}
	now := time.Now()
	f.merge(t, k, metadata.Removal(at, now), c, now)
	return nil
}

// Watch implements metadata.Store.
func (f *Frame) Watch(ctx context.Context, t metadata.Table, partition string, changed func()) error {
	if err := metadata.CheckList(t, partition, "", 1); err != nil {
		return err
	}
	return f.notifier.Watch(ctx, f.closed, t, partition, changed)
}

// Close implements metadata.Store.
func (f *Frame) Close() error {
	f.closing.Do(func() { close(f.closed) })
	return nil
}

// ready is bad, or why no call can be served now.
func (f *Frame) ready(ctx context.Context, bad error) error {
	if bad != nil {
		return bad
	}
	if ctx.Err() != nil {
		return core.Errorf(core.CodeUnavailable, "metadata was not asked: %w", context.Cause(ctx))
	}
	select {
	case <-f.closed:
		return core.Errorf(core.CodeUnavailable, "metadata store is closed")
	default:
		return nil
	}
}

func (f *Frame) change(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, change func(metadata.Cell) (metadata.Cell, error)) error {
	if err := f.ready(ctx, metadata.CheckWrite(t, metadata.RuleCAS, k, value)); err != nil {
		return err
	}
	changed, err := f.cells.Change(t, k, change)
	if changed {
		f.notifier.Notify(t, k.Partition)
	}
	return err
}

func (f *Frame) merge(t metadata.Table, k metadata.Key, next metadata.Cell, c metadata.Consistency, now time.Time) {
	if f.cells.Merge(t, k, next, c, now) {
		f.notifier.Notify(t, k.Partition)
	}
}
