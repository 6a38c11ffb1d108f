// Package memory owns a metadata.Store that lives in the process's memory, for tests and throw-away servers.
package memory

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/metadata"
)

// sweepEvery is how often a Put also forgets the removed and expired rows whose grace is over.
const sweepEvery = time.Hour

// Store keeps rows in memory; every change is seen by all readers at once, whatever their consistency.
type Store struct {
	notifier metadata.Notifier
	versions metadata.Versions
	closing  sync.Once
	closed   chan struct{}

	mu struct {
		sync.Mutex
		partitions map[place]*partition
		swept      time.Time
	}
}

type place struct{ table, partition string }

// partition keeps its rows' names in order so that List need not sort.
type partition struct {
	cells map[string]metadata.Cell
	names []string
}

var _ metadata.Store = (*Store)(nil)

// New makes an empty store.
func New() *Store {
	s := &Store{closed: make(chan struct{})}
	s.mu.partitions = map[place]*partition{}
	return s
}

// Get implements metadata.Store.
func (s *Store) Get(ctx context.Context, t metadata.Table, k metadata.Key, _ metadata.Consistency) (metadata.Row, error) {
	if err := s.ready(ctx, metadata.CheckKey(t, k)); err != nil {
		return metadata.Row{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	cell := s.cellLocked(t, k)
	if !cell.Live(time.Now()) {
		return metadata.Row{}, metadata.NoRow(t, k)
	}
	return row(k, cell), nil
}

// List implements metadata.Store.
func (s *Store) List(ctx context.Context, t metadata.Table, partition, after string, limit int, _ metadata.Consistency) ([]metadata.Row, bool, error) {
	if err := s.ready(ctx, metadata.CheckList(t, partition, after, limit)); err != nil {
		return nil, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.mu.partitions[place{t.Name, partition}]
	if p == nil {
		return nil, false, nil
	}
	now := time.Now()
	i, found := slices.BinarySearch(p.names, after)
	if found {
		i++
	}
	var rows []metadata.Row
	for _, name := range p.names[i:] {
		cell := p.cells[name]
		if !cell.Live(now) {
			continue
		}
		if len(rows) == limit {
			return rows, true, nil
		}
		rows = append(rows, row(metadata.Key{Partition: partition, Row: name}, cell))
	}
	return rows, false, nil
}

// Insert implements metadata.Store.
func (s *Store) Insert(ctx context.Context, t metadata.Table, k metadata.Key, value []byte) error {
	return s.swap(ctx, t, k, value, func(c metadata.Cell) (metadata.Cell, error) {
		return c.Inserted(t, k, bytes.Clone(value), s.versions.First(time.Now()))
	})
}

// Update implements metadata.Store.
func (s *Store) Update(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version, value []byte) error {
	return s.swap(ctx, t, k, value, func(c metadata.Cell) (metadata.Cell, error) {
		return c.Updated(t, k, old, bytes.Clone(value))
	})
}

// Delete implements metadata.Store.
func (s *Store) Delete(ctx context.Context, t metadata.Table, k metadata.Key, old metadata.Version) error {
	return s.swap(ctx, t, k, nil, func(c metadata.Cell) (metadata.Cell, error) {
		s.versions.Deleted(c.Version)
		return c.Deleted(t, k, old)
	})
}

// Put implements metadata.Store.
func (s *Store) Put(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, at time.Time, ttl time.Duration, _ metadata.Consistency) error {
	if err := s.ready(ctx, metadata.CheckPut(t, k, value, at)); err != nil {
		return err
	}
	now := time.Now()
	s.merge(t, k, metadata.Put(bytes.Clone(value), at, ttl, now), now)
	return nil
}

// PutAll implements metadata.Store.
func (s *Store) PutAll(ctx context.Context, t metadata.Table, rows []metadata.Row, c metadata.Consistency) error {
	for _, r := range rows {
		if err := metadata.CheckPut(t, r.Key, r.Value, r.Written); err != nil {
			return err
		}
	}
	for _, r := range rows {
		if err := s.Put(ctx, t, r.Key, r.Value, r.Written, 0, c); err != nil {
			return err
		}
	}
	return nil
}

// Remove implements metadata.Store.
func (s *Store) Remove(ctx context.Context, t metadata.Table, k metadata.Key, at time.Time, _ metadata.Consistency) error {
	if err := s.ready(ctx, metadata.CheckPut(t, k, nil, at)); err != nil {
		return err
	}
	now := time.Now()
	s.merge(t, k, metadata.Removal(at, now), now)
	return nil
}

// Watch implements metadata.Store.
func (s *Store) Watch(ctx context.Context, t metadata.Table, partition string, changed func()) error {
	if err := metadata.CheckList(t, partition, "", 1); err != nil {
		return err
	}
	return s.notifier.Watch(ctx, s.closed, t, partition, changed)
}

// Close implements metadata.Store.
func (s *Store) Close() error {
	s.closing.Do(func() { close(s.closed) })
	return nil
}

// ready is bad, or why no call can be served now.
func (s *Store) ready(ctx context.Context, bad error) error {
	if bad != nil {
		return bad
	}
	if ctx.Err() != nil {
		return core.Errorf(core.CodeUnavailable, "metadata was not asked: %w", context.Cause(ctx))
	}
	select {
	case <-s.closed:
		return core.Errorf(core.CodeUnavailable, "metadata store is closed")
	default:
		return nil
	}
}

// swap changes a CAS row.
func (s *Store) swap(ctx context.Context, t metadata.Table, k metadata.Key, value []byte, change func(metadata.Cell) (metadata.Cell, error)) error {
	if err := s.ready(ctx, metadata.CheckWrite(t, metadata.RuleCAS, k, value)); err != nil {
		return err
	}
	s.mu.Lock()
	next, err := change(s.cellLocked(t, k))
	if err == nil {
		s.setLocked(t, k, next)
	}
	s.mu.Unlock()
	if err == nil {
		s.notifier.Notify(t, k.Partition)
	}
	return err
}

// merge changes a Put row unless a later one is there.
func (s *Store) merge(t metadata.Table, k metadata.Key, next metadata.Cell, now time.Time) {
	s.mu.Lock()
	s.sweepLocked(now)
	won := next.Wins(s.cellLocked(t, k))
	if won {
		s.setLocked(t, k, next)
	}
	s.mu.Unlock()
	if won {
		s.notifier.Notify(t, k.Partition)
	}
}

func (s *Store) cellLocked(t metadata.Table, k metadata.Key) metadata.Cell {
	if p := s.mu.partitions[place{t.Name, k.Partition}]; p != nil {
		return p.cells[k.Row]
	}
	return metadata.Cell{}
}

// setLocked replaces a row's cell; a deleted CAS row leaves nothing behind.
func (s *Store) setLocked(t metadata.Table, k metadata.Key, c metadata.Cell) {
	at := place{t.Name, k.Partition}
	p := s.mu.partitions[at]
	if p == nil {
		p = &partition{cells: map[string]metadata.Cell{}}
		s.mu.partitions[at] = p
	}
	i, found := slices.BinarySearch(p.names, k.Row)
	switch gone := t.Rule == metadata.RuleCAS && c.Version == 0; {
	case !gone && !found:
		p.names = slices.Insert(p.names, i, k.Row)
	case gone && found:
		p.names = slices.Delete(p.names, i, i+1)
		delete(p.cells, k.Row)
		return
	}
	p.cells[k.Row] = c
}

// sweepLocked forgets what no late Put can bring back any more.
func (s *Store) sweepLocked(now time.Time) {
	if now.Sub(s.mu.swept) < sweepEvery {
		return
	}
	s.mu.swept = now
	for at, p := range s.mu.partitions {
		p.names = slices.DeleteFunc(p.names, func(name string) bool {
			when, ok := p.cells[name].SweepAt()
			forget := ok && when.Before(now)
			if forget {
				delete(p.cells, name)
			}
			return forget
		})
		if len(p.names) == 0 {
			delete(s.mu.partitions, at)
		}
	}
}

func row(k metadata.Key, c metadata.Cell) metadata.Row {
	r := c.Row(k)
	r.Value = bytes.Clone(r.Value)
	return r
}
