package extentlog

import (
	"path"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
)

// openTables counts the tables that are open, in a file system.
type openTables struct {
	vfs.FS
	room      int // Open waits while so many are open
	mu        sync.Mutex
	now, most int
	closed    chan struct{} // capacity 1: a table was closed
}

// settle waits until at most n tables are open: the engine closes those it evicts a moment later, in a goroutine of its
// own.
func (s *openTables) settle(t *testing.T, n int) {
	t.Helper()
	if now := s.await(n, time.Minute); now > n {
		t.Fatalf("%d tables stay open, want up to %d", now, n)
	}
}

// await waits until at most n tables are open, and answers how many are.
func (s *openTables) await(n int, most time.Duration) (now int) {
	late := time.After(most)
	for {
		s.mu.Lock()
		now = s.now
		s.mu.Unlock()
		if now <= n {
			return now
		}
		select {
		case <-s.closed:
		case <-late:
			return now
		}
	}
}

// Open gives the engine time to close evicted tables: on a busy machine its goroutine for that is late.
func (s *openTables) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if path.Ext(name) != ".sst" {
		return s.FS.Open(name, opts...)
	}
	s.await(s.room-1, 10*time.Second)
	f, err := s.FS.Open(name, opts...)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now++
	s.most = max(s.most, s.now)
	return &countedTable{File: f, s: s}, nil
}

type countedTable struct {
	vfs.File
	s *openTables
}

func (f *countedTable) Close() error {
	f.s.mu.Lock()
	f.s.now--
	f.s.mu.Unlock()
	select {
	case f.s.closed <- struct{}{}:
	default:
	}
	return f.File.Close()
}

// TestEngine_OpenTables: an engine that may have few tables open reads what is in many.
func TestEngine_OpenTables(t *testing.T) {
	const few, starts = 5, 25
	disk := vfs.NewMem()
	var all []core.ExtentID
	for range starts { // each leaves a table or more
		all = append(all, fillSealed(t, disk, 1)...)
	}
	counted := &openTables{FS: disk, room: 4 * few, closed: make(chan struct{}, 1)}
	e, err := Open("store", Options{Store: "s1", FS: counted, Tables: few})
	must(t, err)
	for range 2 {
		for _, id := range all {
			if err := readAll(e, id); err != nil {
				t.Fatalf("extent %s: %v", id, err)
			}
			counted.settle(t, 2*few) // few, and those that cursors hold
		}
		e.cursors.sweep(func(*cursor) bool { return true })
	}
	tables := e.db.Metrics().Total().TablesCount
	counted.mu.Lock()
	most := counted.most
	counted.mu.Unlock()
	if tables < 5*few || most > 4*few {
		t.Errorf("of %d tables %d were open at once, want %d and a few that are read", tables, most, few)
	}
	counted.settle(t, few)
	must(t, e.Close())
	if counted.now != 0 {
		t.Errorf("%d tables are open after the close", counted.now)
	}
}
