package outputhost

import (
	"sync/atomic"

	"github.com/columbamq/columba/wire/ws"
)

// buffer counts the references to one websocket message that holds batches.
type buffer struct {
	m    *ws.Message
	refs atomic.Int32
}

func (b *buffer) retain() { b.refs.Add(1) }

// Release implements dispatch.Buffer. A nil buffer holds nothing.
func (b *buffer) Release() {
	if b == nil {
		return
	}
	if b.refs.Add(-1) == 0 {
		b.m.Release()
	}
}

// smallPart of a message is less than one in so many bytes. A backlog comes in messages of 1 MiB with batches of a tenth of that, which must not be
// copied here, and once more when they are handed out.
const smallPart = 16

// hold keeps the records' bytes: by a reference to the message, or, for what is a small part of it, by a copy (and nil), so that one stuck
// record does not keep a whole message: only until its share has read on for a while, see dispatch, or that many times its batch.
func hold(bytes []byte, m *ws.Message) ([]byte, *buffer) {
	if smallPart*len(bytes) < len(m.Bytes) {
		return append([]byte(nil), bytes...), nil
	}
	m.Retain()
	b := &buffer{m: m}
	b.refs.Store(1)
	return bytes, b
}
