package ws

import (
	"io"
	"math/bits"
	"sync"
	"sync/atomic"
)

// Message is a received websocket message in a pooled, reference-counted buffer.
type Message struct {
	Bytes []byte
	store []byte // the whole pooled buffer; nil for a Message that is not pooled
	refs  atomic.Int32
}

// Buffers are pooled by powers of two. What is larger is left to the garbage collector.
const (
	minClass = 12 // 4 KiB
	maxClass = 25 // 32 MiB
)

var pools [maxClass - minClass + 1]sync.Pool

// newMessage is an empty message with room for size bytes and one reference.
func newMessage(size int) *Message {
	class := max(bits.Len(uint(max(size, 1)-1)), minClass)
	if class > maxClass {
		m := &Message{store: make([]byte, size)}
		m.refs.Store(1)
		return m
	}
	m, _ := pools[class-minClass].Get().(*Message)
	if m == nil {
		m = &Message{store: make([]byte, 1<<class)}
	}
	m.Bytes = m.store[:0]
	m.refs.Store(1)
	return m
}

// Copy is a message of its own with one reference, for whoever needs a small part of another one for long.
func Copy(b []byte) *Message {
	m := newMessage(len(b))
	m.Bytes = append(m.Bytes, b...)
	return m
}

// Retain keeps the buffer until the matching Release.
func (m *Message) Retain() { m.refs.Add(1) }

// Release gives one reference back. Bytes must not be touched after the last.
func (m *Message) Release() {
	switch left := m.refs.Add(-1); {
	case m.store == nil:
	case left < 0:
		panic("ws: message released more often than retained")
	case left == 0:
		m.Bytes = nil
		if class := bits.Len(uint(len(m.store) - 1)); class <= maxClass && len(m.store) == 1<<class {
			pools[class-minClass].Put(m)
		}
	}
}

// receiver reads messages into pooled buffers of about their size.
type receiver struct {
	expected int // size of the message before
	spill    [512]byte
}

// receive reads r to its end. A buffer is never more than twice the size of what has been read into it, of the message before or
// of the smallest class.
func (v *receiver) receive(r io.Reader) (*Message, error) {
	m, n := newMessage(v.expected), 0
	for {
		into := m.store[n:]
		if len(into) == 0 {
			into = v.spill[:]
		}
		k, err := r.Read(into)
		if n == len(m.store) && k > 0 {
			larger := newMessage(2 * len(m.store))
			copy(larger.store, m.store)
			copy(larger.store[n:], v.spill[:k])
			m.Release()
			m = larger
		}
		n += k
		if err == io.EOF {
			break
		}
		if err != nil {
			m.Release()
			return nil, err
		}
	}
	v.expected = n
	if fitting := max(n, 1<<minClass); len(m.store) >= 4*fitting { // whoever retains a small message should not hold a large buffer
		smaller := newMessage(n)
		copy(smaller.store, m.store[:n])
		m.Release()
		m = smaller
	}
	m.Bytes = m.store[:n]
	return m, nil
}
