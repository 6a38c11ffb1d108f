package extentlog

import (
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// moves counts the moments in which records change their table. The database takes the old table away before it shows
// the records in the new one, so an iterator that is made meanwhile sees neither. Safe for concurrent use; one move is
// under way at a time.
type moves struct {
	serial atomic.Uint64 // odd while a move is under way
	mu     struct {
		sync.Mutex
		over chan struct{} // closed when the move that began last is over
	}
}

func (m *moves) begin() {
	m.mu.Lock()
	m.mu.over = make(chan struct{})
	m.mu.Unlock()
	m.serial.Add(1)
}

func (m *moves) end() {
	m.serial.Add(1)
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.mu.over)
}

func (m *moves) over() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.over
}

// iterate makes an iterator over batches, which sees each of them once. It waits for the end of a move.
func (e *Engine) iterate(o *pebble.IterOptions) (*pebble.Iterator, error) {
	for {
		serial := e.moves.serial.Load()
		if serial%2 == 1 {
			select {
			case <-e.moves.over():
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
