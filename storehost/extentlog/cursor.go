package extentlog

import (
	"bytes"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/columbamq/columba/core"
)

// Bounds of what is kept of readers in order, between two pieces. To find a batch anew costs a look into each of the
// tables that overlap, of which there are dozens. Looking further ahead may load a block of each of the tables where
// that is, in vain if the reader does not go on.
const (
	maxCursors = 256
	maxAhead   = 128 << 20       // bytes that all cursors of a store may look ahead
	maxWindow  = 16              // pieces that one looks ahead: twice as many as the one before it, from one on
	cursorAge  = 1 * time.Second // after that it is given up: it pins blocks, tables and memtables
)

// cursor reads batches of an extent in order, from a view of the database as it was when it was opened: what a seal has
// cut off since is beyond what anybody may read. One goroutine uses it at a time.
type cursor struct {
	place
	iter   *pebble.Iterator // nil: it is at its end
	passed bool             // the iterator is at the batch before next
	end    core.Seq         // it sees all batches up to here, and may see more
	wide   bool             // it looks into tables of all of the extent
	window int              // pieces
	ahead  int              // bytes
	size   uint64           // of a record: of those read last, at least the mean
	opened time.Time
}

// place is where a reader in order goes on.
type place struct {
	x    *extent
	next core.Seq
}

// openCursor stands at the batch that holds p.next, and sees what comes up to end at least. Readers in order ask for
// the first seq of a batch; only others pay for the step back, for which Pebble copies the value, loads the one before
// it, and needs blocks that begin before what is asked for.
func (e *Engine) openCursor(p place, end core.Seq) (*cursor, error) {
	key := batchKey(p.x.id, p.next)
	c := &cursor{place: p, end: end, opened: time.Now()}
	var err error
	c.iter, err = e.iterate(&pebble.IterOptions{LowerBound: key, UpperBound: batchKey(p.x.id, end+1), PointKeyFilters: within(p.x.id, p.next, end)})
	if err != nil {
		return nil, diskError(p.x, err)
	}
	if c.iter.First() && bytes.Equal(c.iter.Key(), key) {
		return c, nil
	}
	if err := c.iter.Close(); err != nil {
		return nil, diskError(p.x, err)
	}
	c.wide = true
	if c.iter, err = e.batches(p.x); err != nil {
		return nil, err
	}
	if !c.iter.SeekGE(key) || !bytes.Equal(c.iter.Key(), key) {
		if err := c.iter.Error(); err != nil { // the step back would forget it, and find the batch before
			c.close()
			return nil, diskError(p.x, err)
		}
		c.iter.SeekLT(key)
	}
	return c, nil
}

// read answers batches with a base in next … upTo, of records of about a size, and passes them. After an error the
// cursor is of no use.
func (c *cursor) read(upTo core.Seq, maxBytes int, size uint64) ([]byte, error) {
	estimate := size * uint64(upTo-c.next+1)
	out := make([]byte, 0, min(estimate+estimate/8, uint64(maxBytes)))
	run := chain{extent: c.x.id, next: c.next}
	if c.passed {
		c.iter.Next()
	}
	for ; c.iter.Valid(); c.iter.Next() {
		c.passed = false
		b, err := current(c.x, c.iter)
		switch {
		case err != nil:
			return nil, err
		case b.Last() > upTo || len(out) > 0 && len(out)+len(b.Bytes) > maxBytes:
			return out, nil
		}
		if err := run.take(b); err != nil {
			return nil, err
		}
		out = append(out, b.Bytes...)
		c.next, c.passed = b.Last()+1, true
		// Going on to a batch that does not fit would load it before its time: the next one is likely as large as this one.
		if b.Last() == upTo || len(out)+len(b.Bytes) > maxBytes {
			return out, nil
		}
	}
	if err := c.iter.Error(); err != nil {
		return nil, diskError(c.x, err)
	}
	if len(out) > 0 && c.next > c.end {
		return out, nil
	}
	return nil, missing(c.x.id, c.next)
}

// left is how many records it sees ahead at least.
func (c *cursor) left() core.Seq { return max(c.end+1, c.next) - c.next }

// look reckons what is ahead after n bytes were read from a place on: in parts of an extent, records may be much larger
// than the mean.
func (c *cursor) look(from core.Seq, n int, mean uint64) {
	c.size = max(mean, uint64(n)/max(uint64(c.next-from), 1))
	c.ahead = int(uint64(c.left()) * c.size)
}

// close may be called again. The iterator's error was met where it stood.
func (c *cursor) close() {
	if c.iter != nil {
		_ = c.iter.Close()
		c.iter = nil
	}
}

// cursors are of readers in order; who reads takes one out.
type cursors struct {
	mu    sync.Mutex
	open  map[place]*cursor
	ahead int // bytes, of all
}

// take is nil when nobody ended there lately.
func (s *cursors) take(p place) *cursor {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.open[p]
	if c != nil {
		s.dropLocked(c)
	}
	return c
}

func (s *cursors) dropLocked(c *cursor) {
	delete(s.open, c.place)
	s.ahead -= c.ahead
}

// keep closes what there is no room for.
func (s *cursors) keep(c *cursor) {
	s.mu.Lock()
	_, other := s.open[c.place]
	kept := !other && len(s.open) < maxCursors && s.ahead+c.ahead <= maxAhead
	if kept {
		s.open[c.place] = c
		s.ahead += c.ahead
	}
	s.mu.Unlock()
	if !kept {
		c.close()
	}
}

// sweep closes those for which gone is true.
func (s *cursors) sweep(gone func(*cursor) bool) {
	var all []*cursor
	s.mu.Lock()
	for _, c := range s.open {
		if gone(c) {
			all = append(all, c)
			s.dropLocked(c)
		}
	}
	s.mu.Unlock()
	for _, c := range all {
		c.close()
	}
}
