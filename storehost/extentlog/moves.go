package extentlog

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/columbamq/columba/core"
)

// moves knows the move of batches to another table that is under way, and which removed extents may still have batches
// that iterators show. One move is under way at a time.
//
//	        begin             change               end
//	(none) ───────▶ copying ──────────▶ changing ─────────▶ (none)
//	                   │ or spoiled by a truncation            ▲
//	                   └───────────────────────────────────────┘ end
//
// A removal of an extent in the range does not disturb the move. It waits for the end, and then cuts the extent out. A
// seal does not wait for copying. Its truncation spoils the copy. While the database changes tables, the seal waits.
// Safe for concurrent use.
type moves struct {
	serial    atomic.Uint64 // odd while the database changes tables; see iterate
	deletions atomic.Int64  // of batches, that the database ever got
	mu        struct {
		sync.Mutex
		under     *move                      // nil: none is under way
		changed   chan struct{}              // closed when the change that began last is over
		leaving   map[core.ExtentID]struct{} // removed, and not cut out yet
		shortened map[core.ExtentID]struct{} // by a truncation that is staged, and not in the database yet
	}
}

// move is one that is under way. The lock of moves guards it.
type move struct {
	from, to []byte // keys; to is exclusive
	over     chan struct{}
	changing bool
	spoiled  bool
}

// covers reports whether the extent may have batches in the range.
func (m *move) covers(id core.ExtentID) bool {
	return bytes.Compare(extentKey(prefixBatch, id), m.to) < 0 && bytes.Compare(m.from, afterExtent(prefixBatch, id)) < 0
}

// begin begins a move. errLeaving: batches of an extent in the range would come back. errMoveLater: so would those that
// a truncation takes away.
func (s *moves) begin(from, to []byte) (*move, error) {
	m := &move{from: from, to: to, over: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.mu.leaving {
		if m.covers(id) {
			return nil, errLeaving
		}
	}
	for id := range s.mu.shortened {
		if m.covers(id) {
			return nil, errMoveLater
		}
	}
	s.mu.under = m
	return m, nil
}

// change ends the copying; false when the copy is spoiled.
func (s *moves) change(m *move) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.changing = !m.spoiled
	return m.changing
}

// end ends a move, done or not.
func (s *moves) end(m *move) {
	s.mu.Lock()
	s.mu.under = nil
	s.mu.Unlock()
	close(m.over)
}

// removes notes a removal that is staged. over, if it is not nil, is closed when the move of the extent's batches is
// over.
func (s *moves) removes(id core.ExtentID) (over <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.leaving[id] = struct{}{}
	if m := s.mu.under; m != nil && m.covers(id) {
		return m.over
	}
	return nil
}

// removed notes that an extent is cut out.
func (s *moves) removed(id core.ExtentID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.leaving, id)
}

// truncates notes that batches of an extent are about to be taken away, until truncated is called. If over is not nil,
// this must not be staged before over is closed: the deletion may come into the database before the new table, which
// has the batches.
func (s *moves) truncates(id core.ExtentID) (over <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.mu.under; m != nil && m.covers(id) {
		if m.changing {
			return m.over
		}
		m.spoiled = true
	}
	s.mu.shortened[id] = struct{}{}
	return nil
}

// truncated notes that a truncation is in the database, or was not staged.
func (s *moves) truncated(id core.ExtentID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.shortened, id)
}

// errMoving is the error of a step that may be staged once over is closed.
type errMoving struct{ over <-chan struct{} }

func (errMoving) Error() string { return "batches of the extent are changing their table" }

// awaitMove waits for the end of a move, for doPatience at most; false when it has not ended.
func (e *Engine) awaitMove(err error) bool {
	var moving errMoving
	if !errors.As(err, &moving) {
		return false
	}
	timer := time.NewTimer(doPatience)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-moving.over:
		return true
	case <-e.stop:
	case <-e.failed:
	}
	return false
}

// beginChange has iterators wait until the returned function is called.
func (s *moves) beginChange() (end func()) {
	changed := make(chan struct{})
	s.mu.Lock()
	s.mu.changed = changed
	s.mu.Unlock()
	s.serial.Add(1)
	return func() {
		s.serial.Add(1)
		close(changed)
	}
}

func (s *moves) changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.changed
}

// iterate makes an iterator over batches, which shows each of them once. The database takes the old table of a move
// away before it shows the batches in the new one. So iterate waits for the end of a change, and makes an iterator anew
// if a change began meanwhile.
func (e *Engine) iterate(o *pebble.IterOptions) (*pebble.Iterator, error) {
	for {
		serial := e.moves.serial.Load()
		if serial%2 == 1 {
			select {
			case <-e.moves.changed():
				continue
			case <-e.failed:
				return nil, e.refusing()
			}
		}
		iter, err := e.db.NewIter(o)
		if err != nil || e.moves.serial.Load() == serial {
			return iter, err
		}
		if err := iter.Close(); err != nil {
			return nil, err
		}
	}
}
