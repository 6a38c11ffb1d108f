// Package memory owns a metadata.Store that lives in the process's memory, for tests and throw-away servers. Frame and
// Index are for other stores that do.
package memory

import (
	"sync"
	"time"

	"github.com/columbamq/columba/metadata"
)

// sweepEvery is how often a Put also forgets the removed and expired rows whose grace is over.
const sweepEvery = time.Hour

// Store keeps rows in memory; every change is seen by all readers at once, whatever their consistency.
type Store struct {
	*Frame
	cells cells
}

var _ metadata.Store = (*Store)(nil)

// New makes an empty store.
func New() *Store {
	s := &Store{}
	s.Frame = NewFrame(&s.cells)
	return s
}

// cells are one replica of all rows.
type cells struct {
	mu struct {
		sync.Mutex
		rows  Index[metadata.Cell]
		swept time.Time
	}
}

// Read implements Cells.
func (s *cells) Read(t metadata.Table, k metadata.Key, _ metadata.Consistency, _ time.Time) metadata.Cell {
	s.mu.Lock()
	defer s.mu.Unlock()
	cell, _ := s.mu.rows.Get(t, k)
	return cell
}

// List implements Cells.
func (s *cells) List(t metadata.Table, partition, after string, limit int, _ metadata.Consistency, now time.Time) ([]metadata.Row, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.rows.List(t, partition, after, limit, now, func(c metadata.Cell) metadata.Cell { return c })
}

// Change implements Cells. A deleted row leaves nothing behind.
func (s *cells) Change(t metadata.Table, k metadata.Key, change func(metadata.Cell) (metadata.Cell, error)) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cell, _ := s.mu.rows.Get(t, k)
	next, err := change(cell)
	switch {
	case err != nil:
		return false, err
	case next.Version == 0:
		s.mu.rows.Delete(t, k)
	default:
		s.mu.rows.Set(t, k, next)
	}
	return true, nil
}

// Merge implements Cells.
func (s *cells) Merge(t metadata.Table, k metadata.Key, next metadata.Cell, _ metadata.Consistency, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweepLocked(now)
	if cell, _ := s.mu.rows.Get(t, k); !next.Wins(cell) {
		return false
	}
	s.mu.rows.Set(t, k, next)
	return true
}

// sweepLocked forgets what no late Put can bring back any more.
func (s *cells) sweepLocked(now time.Time) {
	if now.Sub(s.mu.swept) < sweepEvery {
		return
	}
	s.mu.swept = now
	s.mu.rows.Sweep(func(c metadata.Cell) bool {
		when, ok := c.SweepAt()
		return ok && when.Before(now)
	})
}
