package pebble

import (
	"bytes"
	"context"
	"time"

	engine "github.com/cockroachdb/pebble/v2"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// maxWrite bounds the bytes of one durable write of PutAll.
const maxWrite = 1 << 20

// Insert implements metadata.Store.
func (s *Store) Insert(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) error {
	value = bytes.Clone(value) // a write that is late goes on without its caller
	return s.swap(ctx, t, k, value, func(c metadata.Cell) (metadata.Cell, error) {
		at := now()
		return c.Inserted(t, k, value, s.versions.First(at), at)
	})
}

// Update implements metadata.Store.
func (s *Store) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte, ttl time.Duration) error {
	if err := metadata.CheckUpdate(t, k, value, ttl); err != nil {
		return err
	}
	value = bytes.Clone(value)
	return s.swap(ctx, t, k, value, func(c metadata.Cell) (metadata.Cell, error) {
		return c.Updated(t, k, old, value, ttl, now())
	})
}

// Delete implements metadata.Store.
func (s *Store) Delete(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version) error {
	return s.swap(ctx, t, k, nil, func(c metadata.Cell) (metadata.Cell, error) {
		s.versions.Deleted(c.Version)
		return c.Deleted(t, k, old, now())
	})
}

// Put implements metadata.Store.
func (s *Store) Put(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, at time.Time, ttl time.Duration, _ metadata.Consistency) error {
	if err := metadata.CheckPut(t, k, value, at); err != nil {
		return err
	}
	return s.merge(ctx, t, []put{{k, metadata.Put(bytes.Clone(value), at, ttl, now())}})
}

// Remove implements metadata.Store.
func (s *Store) Remove(ctx context.Context, t metadata.Table, k metadata.Key, at time.Time, _ metadata.Consistency) error {
	if err := metadata.CheckPut(t, k, nil, at); err != nil {
		return err
	}
	return s.merge(ctx, t, []put{{k, metadata.Removal(at, now())}})
}

// PutAll implements metadata.Store with one durable write per MiB.
func (s *Store) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, _ metadata.Consistency) error {
	for _, r := range rows {
		if err := metadata.CheckPut(t, r.Key, r.Value, r.Written); err != nil {
			return err
		}
	}
	ctx, cancel := metadata.Deadline(ctx)
	defer cancel()
	var puts []put
	first, size := 0, 0
	for i, r := range rows {
		puts = append(puts, put{r.Key, metadata.Put(bytes.Clone(r.Value), r.Written, 0, now())})
		size += len(r.Value) + len(r.Key.Partition) + len(r.Key.Row)
		if size < maxWrite && i < len(rows)-1 {
			continue
		}
		if err := s.merge(ctx, t, puts); err != nil {
			return metadata.UnstoredFrom(first, len(rows), err)
		}
		puts, first, size = nil, i+1, 0
	}
	return nil
}

type put struct {
	key  metadata.Key
	cell metadata.Cell
}

// swap changes a CAS row.
func (s *Store) swap(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, change func(metadata.Cell) (metadata.Cell, error)) error {
	if err := metadata.CheckWrite(t, metadata.RuleCAS, k, value); err != nil {
		return err
	}
	key := rowKey(t, k)
	return s.change(ctx, [][]byte{key}, func(b *engine.Batch) error {
		cell, err := s.cell(key)
		if err != nil {
			return err
		}
		next, err := change(cell)
		if err != nil {
			return err
		}
		return s.set(b, key, cell, next)
	}, func() { s.notifier.Notify(t, k.Partition) })
}

// merge writes those of the rows that win.
func (s *Store) merge(ctx context.Context, t metadata.Table, puts []put) error {
	keys := make([][]byte, len(puts))
	for i, p := range puts {
		keys[i] = rowKey(t, p.key)
	}
	changed := map[string]struct{}{}
	return s.change(ctx, keys, func(b *engine.Batch) error {
		last := map[string]metadata.Cell{} // what this batch holds already
		for i, p := range puts {
			old, again := last[string(keys[i])]
			if !again {
				var err error
				if old, err = s.cell(keys[i]); err != nil {
					return err
				}
			}
			if !p.cell.Wins(old) {
				continue
			}
			if err := s.set(b, keys[i], old, p.cell); err != nil {
				return err
			}
			last[string(keys[i])] = p.cell
			changed[p.key.Partition] = struct{}{}
		}
		return nil
	}, func() {
		for partition := range changed {
			s.notifier.Notify(t, partition)
		}
	})
}

// set replaces old by next in the batch, and keeps the sweep index equal to what the rows say.
func (s *Store) set(b *engine.Batch, key []byte, old, next metadata.Cell) error {
	if at, ok := old.SweepAt(); ok {
		if err := b.Delete(sweepKey(at, key), nil); err != nil {
			return s.diskError(err)
		}
	}
	if at, ok := next.SweepAt(); ok {
		if err := b.Set(sweepKey(at, key), nil, nil); err != nil {
			return s.diskError(err)
		}
	}
	if next.None() {
		return s.diskError(b.Delete(key, nil))
	}
	return s.diskError(b.Set(key, next.Append(nil), nil))
}

// change fills a batch under the latches of its rows and makes it durable, then calls changed if there was something to
// write.
func (s *Store) change(ctx context.Context, keys [][]byte, fill func(*engine.Batch) error, changed func()) error {
	rows := make([]string, len(keys))
	for i, key := range keys {
		rows[i] = string(key)
	}
	take := func(ctx context.Context) (func(), error) { return s.latches.acquire(ctx, rows) }
	return s.call(ctx, core.CodeUnknown, take, func() error {
		b := s.db.NewBatch()
		defer b.Close()
		if err := fill(b); err != nil {
			return err
		}
		if b.Empty() {
			return nil
		}
		s.writing.Add(1)
		defer s.writing.Add(-1)
		if err := b.Commit(engine.Sync); err != nil {
			return core.Errorf(core.CodeUnknown, "write metadata in %s: %w", s.dir, err)
		}
		changed()
		return nil
	})
}
