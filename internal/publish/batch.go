package publish

import (
	"sync"
	"sync/atomic"

	"github.com/columbamq/columba/core"
)

// batch is records that travel together. Its fields are guarded by the publisher's mutex once others can see it, except
// that the bytes and the settled slots do not change while someone holds a reference.
//
//	gathering ──taken by the loop──▶ in flight ──all answered, none left──▶ done
//	    queued ◀──some refused for now, or the session was lost──┘
type batch struct {
	number uint64 // of the publisher's batches, from 1: their order
	epoch  int64  // unix ms of the publisher's clock's zero
	buf    []byte
	slots  []slot

	first  uint64 // number of its first record on the session it was sent on
	sentAt int64
	left   int // slots without an outcome
	open   int // slots that wait for an answer

	on      *session // it is or was being written on
	written func()   // tells it; made once

	uncalled int // slots whose owners do not know yet
	refs     atomic.Int32
}

// slot is one record of a batch.
type slot struct {
	done     Done
	id       core.MessageID
	deadline int64  // on the publisher's clock
	end      uint32 // of the record in buf
	state    slotState
}

type slotState uint8

const (
	slotOpen    slotState = 1 << iota // sent, not answered
	slotSettled                       // has its outcome
	slotMaybe                         // an earlier try may have stored it
)

var batches = sync.Pool{New: func() any { return new(batch) }}

func newBatch(number uint64) *batch {
	b := batches.Get().(*batch)
	b.number = number
	b.refs.Store(2) // one until it has all outcomes, one until all owners know
	return b
}

// maxPooled is the largest buffer worth keeping.
const maxPooled = 2 * batchTarget

// release gives one reference back.
func (b *batch) release() {
	if b.refs.Add(-1) > 0 {
		return
	}
	if cap(b.buf) > maxPooled {
		return
	}
	clear(b.slots)
	*b = batch{buf: b.buf[:0], slots: b.slots[:0], written: b.written}
	batches.Put(b)
}

// writtenOn is what the connection of s calls when it has written the batch. A batch is written on one session at a
// time, but for one that was lost meanwhile.
func (b *batch) writtenOn(s *session) func() {
	if b.on != nil {
		return func() { s.written(b) }
	}
	b.on = s
	if b.written == nil {
		b.written = func() { b.on.written(b) }
	}
	return b.written
}

// start is where the record of slot i begins in buf.
func (b *batch) start(i int) uint32 {
	if i == 0 {
		return 0
	}
	return b.slots[i-1].end
}

// compact drops the settled records. Others may hold the old bytes and slots, so it makes new ones.
func (b *batch) compact() {
	buf := make([]byte, 0, len(b.buf))
	slots := make([]slot, 0, b.left)
	for i, s := range b.slots {
		if s.state&slotSettled != 0 {
			continue
		}
		buf = append(buf, b.buf[b.start(i):s.end]...)
		s.end = uint32(len(buf))
		slots = append(slots, s)
	}
	b.buf, b.slots = buf, slots
}
