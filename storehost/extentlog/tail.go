package extentlog

import (
	"slices"
	"sync"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// Bounds of the newest batches kept in memory for readers at the head.
const (
	maxTailBytes  = 32 << 20 // of one extent
	maxTailsBytes = 128 << 20
	firstChunk    = 16 << 10
	largestChunk  = 1 << 20
	tailIdle      = 10 * time.Second
)

// tail keeps an unbroken run of an extent's newest batches while somebody follows it. Batches lie back to back in
// chunks that are only ever appended to, so a reader takes a slice without copying and the collector frees a chunk when
// its last reader is done.
type tail struct {
	mu struct {
		sync.Mutex
		chunks []*chunk // oldest first; a chunk that leaves is the oldest
	}
}

type chunk struct {
	owner   *tail
	bytes   []byte
	batches []tailBatch
	used    time.Time // last append
	left    bool      // no longer counted; under the lock of all tails
}

type tailBatch struct {
	base, last core.Seq
	end        int // offset behind it
}

// tails bounds all tails of a log together. Never locked together with a tail.
type tails struct {
	limit, each int // bytes of all together, and of one tail
	mu          struct {
		sync.Mutex
		chunks []*chunk // oldest first
		bytes  int
	}
}

// add copies a durable batch; only settleLoop calls it.
func (t *tail) add(batch []byte, all *tails) {
	b, err := wire.DecodeBatch(batch)
	if err != nil {
		return // was checked when it was staged
	}
	if t.broken(b.Base) {
		t.drop(all)
	}
	fresh := t.append(b)
	if fresh == nil {
		return
	}
	for _, old := range all.admit(fresh) {
		old.owner.evict(old)
	}
	if over := t.over(all.each); over != nil {
		t.evict(over)
		all.discharge(over)
	}
}

// broken reports whether base does not continue the tail: batches in between came while nobody followed.
func (t *tail) broken(base core.Seq) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.mu.chunks)
	if n == 0 {
		return false
	}
	batches := t.mu.chunks[n-1].batches
	return batches[len(batches)-1].last+1 != base
}

// append puts the batch into the newest chunk, or into a fresh one, which it answers.
func (t *tail) append(b wire.Batch) (fresh *chunk) {
	t.mu.Lock()
	defer t.mu.Unlock()
	size := firstChunk
	var c *chunk
	if n := len(t.mu.chunks); n > 0 {
		c = t.mu.chunks[n-1]
		size = min(2*cap(c.bytes), largestChunk)
	}
	if c == nil || cap(c.bytes)-len(c.bytes) < len(b.Bytes) {
		c = &chunk{owner: t, bytes: make([]byte, 0, max(size, len(b.Bytes)))}
		t.mu.chunks = append(t.mu.chunks, c)
		fresh = c
	}
	c.bytes = append(c.bytes, b.Bytes...)
	c.batches = append(c.batches, tailBatch{b.Base, b.Last(), len(c.bytes)})
	c.used = time.Now()
	return fresh
}

// over is the oldest chunk of a tail beyond its bound.
func (t *tail) over(limit int) *chunk {
	t.mu.Lock()
	defer t.mu.Unlock()
	sum := 0
	for _, c := range t.mu.chunks {
		sum += cap(c.bytes)
	}
	if sum <= limit {
		return nil
	}
	return t.mu.chunks[0]
}

// evict drops the chunk and everything older, so that what stays is unbroken.
func (t *tail) evict(c *chunk) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.mu.chunks, c); i >= 0 {
		t.mu.chunks = slices.Delete(t.mu.chunks, 0, i+1)
	}
}

// drop forgets everything.
func (t *tail) drop(all *tails) {
	t.mu.Lock()
	chunks := t.mu.chunks
	t.mu.chunks = nil
	t.mu.Unlock()
	all.discharge(chunks...)
}

// read answers whole batches from the one that holds from, at least one, out of one chunk; ok is false when the tail
// begins later.
func (t *tail) read(from, upTo core.Seq, maxBytes int) (b []byte, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.mu.chunks) == 0 || from < t.mu.chunks[0].batches[0].base {
		return nil, false
	}
	i, _ := slices.BinarySearchFunc(t.mu.chunks, from, func(c *chunk, seq core.Seq) int {
		if c.batches[len(c.batches)-1].last < seq {
			return -1
		}
		return 1
	})
	if i == len(t.mu.chunks) {
		return nil, false
	}
	return t.mu.chunks[i].read(from, upTo, maxBytes), true
}

func (c *chunk) read(from, upTo core.Seq, maxBytes int) []byte {
	first, _ := slices.BinarySearchFunc(c.batches, from, func(b tailBatch, seq core.Seq) int {
		if b.last < seq {
			return -1
		}
		return 1
	})
	start := 0
	if first > 0 {
		start = c.batches[first-1].end
	}
	end := start
	for _, b := range c.batches[first:] {
		if b.last > upTo || end > start && b.end-start > maxBytes {
			break
		}
		end = b.end
	}
	if end == start {
		return nil
	}
	return c.bytes[start:end:end]
}

// admit charges a fresh chunk and answers the oldest ones that must leave for it.
func (a *tails) admit(fresh *chunk) (leaving []*chunk) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.chunks = append(a.mu.chunks, fresh)
	a.mu.bytes += cap(fresh.bytes)
	n := 0
	for a.mu.bytes > a.limit && n < len(a.mu.chunks)-1 {
		a.mu.bytes -= cap(a.mu.chunks[n].bytes)
		n++
	}
	leaving = slices.Clone(a.mu.chunks[:n])
	a.mu.chunks = slices.Delete(a.mu.chunks, 0, n)
	return leaving
}

func (a *tails) discharge(chunks ...*chunk) {
	if len(chunks) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range chunks {
		c.left = true
	}
	a.mu.chunks = slices.DeleteFunc(a.mu.chunks, func(c *chunk) bool {
		if c.left {
			a.mu.bytes -= cap(c.bytes)
		}
		return c.left
	})
}

// sweep drops what nobody added to for a while.
func (a *tails) sweep(now time.Time) {
	a.mu.Lock()
	chunks := slices.Clone(a.mu.chunks)
	a.mu.Unlock()
	var idle []*chunk
	for _, c := range chunks {
		if c.owner.idle(c, now) {
			c.owner.evict(c)
			idle = append(idle, c)
		}
	}
	a.discharge(idle...)
}

func (t *tail) idle(c *chunk, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return now.Sub(c.used) > tailIdle
}
