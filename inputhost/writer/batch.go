package writer

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
)

// batch is what travels together to all replicas: the same bytes to each. It is used again once the writer and every
// replica have let go of it.
type batch struct {
	base    core.Seq
	last    core.Seq
	bytes   int
	sent    time.Time
	chunks  []Chunk
	records []byte // the only chunk's own, held, or copy

	copy []byte // of several chunks
	held Holder // keeps records, when they are a chunk's
	refs atomic.Int32
	done func() // release, made once
}

// maxKept is the largest copy worth keeping.
const maxKept = 2 * wire.BatchTarget

var batches = sync.Pool{New: func() any { return new(batch) }}

// newBatch has one reference.
func newBatch() *batch {
	b := batches.Get().(*batch)
	if b.done == nil {
		b.done = b.release
	}
	b.bytes = 0
	b.refs.Store(1)
	return b
}

// gather makes one run of bytes of the chunks.
func (b *batch) gather() {
	if len(b.chunks) == 1 {
		b.held = b.chunks[0].Hold
		b.held.Retain()
		b.records = b.chunks[0].Records
		return
	}
	if cap(b.copy) < b.bytes {
		b.copy = make([]byte, 0, max(b.bytes, 4<<10))
	}
	b.copy = b.copy[:0]
	for i := range b.chunks {
		b.copy = append(b.copy, b.chunks[i].Records...)
	}
	b.records = b.copy
}

func (b *batch) count() (n uint32) {
	for i := range b.chunks {
		n += b.chunks[i].Count
	}
	return n
}

// release gives one reference back.
func (b *batch) release() {
	if b.refs.Add(-1) > 0 {
		return
	}
	if b.held != nil {
		b.held.Release()
		b.held = nil
	}
	if cap(b.copy) > maxKept {
		b.copy = nil
	}
	clear(b.chunks)
	b.chunks, b.records = b.chunks[:0], nil
	batches.Put(b)
}

// acknowledge answers the chunks from base on.
func (b *batch) acknowledge(extent core.ExtentID) {
	base := b.base
	for i := range b.chunks {
		c := &b.chunks[i]
		c.From.Answer(*c, Outcome{Status: wire.AckOK, Extent: extent, Base: base})
		base += core.Seq(c.Count)
	}
}
