package extentlog

import (
	"path"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/columbamq/columba/core"
)

// openTables counts the tables that are open, in a file system.
type openTables struct {
	vfs.FS
	mu        sync.Mutex
	now, most int
}

func (s *openTables) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := s.FS.Open(name, opts...)
	if err != nil || path.Ext(name) != ".sst" {
		return f, err
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
	return f.File.Close()
}

// TestEngine_OpenTables: an engine that may have few tables open reads what is in many.
func TestEngine_OpenTables(t *testing.T) {
	const few, starts = 8, 40
	disk := vfs.NewMem()
	var all []core.ExtentID
	for range starts { // each leaves a table or more
		all = append(all, fillSealed(t, disk, 1)...)
	}
	counted := &openTables{FS: disk}
	e, err := Open("store", Options{Store: "s1", FS: counted, Tables: few})
	must(t, err)
	for range 2 {
		for _, id := range all {
			if err := readAll(e, id); err != nil {
				t.Fatalf("extent %s: %v", id, err)
			}
		}
		e.cursors.sweep(func(*cursor) bool { return true })
	}
	tables := e.db.Metrics().Total().TablesCount
	counted.mu.Lock()
	now, most := counted.now, counted.most
	counted.mu.Unlock()
	if tables < 5*few || now > few || most > 4*few { // the engine closes them a moment later
		t.Errorf("of %d tables %d were open at once and %d are, want %d and a few that are read", tables, most, now, few)
	}
	must(t, e.Close())
	if counted.now != 0 {
		t.Errorf("%d tables are open after the close", counted.now)
	}
}
