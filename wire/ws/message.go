package ws

import (
	"bytes"
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

// Buffers are pooled by powers of two. Larger buffers are left to the garbage collector.
const (
	minClass = 12 // 4 KiB
	maxClass = 24 // 16 MiB
)

var pools [maxClass - minClass + 1]sync.Pool

// newMessage is an empty message with room for size bytes and one reference.
func newMessage(size int) *Message {
	class := max(bits.Len(uint(max(size, 1)-1)), minClass)
	if class > maxClass {
		m := &Message{store: make([]byte, size)}
		m.Bytes = m.store[:0]
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

// roundUp is the size of the buffer that newMessage makes.
func roundUp(size int) int {
	class := max(bits.Len(uint(max(size, 1)-1)), minClass)
	if class > maxClass {
		return size
	}
	return 1 << class
}

// Copy is a message of its own with one reference, for whoever needs a small part of another one for long. One below
// the smallest pooled buffer takes its size only.
func Copy(b []byte) *Message {
	if len(b) < 1<<minClass {
		m := &Message{Bytes: bytes.Clone(b)}
		m.refs.Store(1)
		return m
	}
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
	expected int    // size of the message before
	limit    int    // of a message
	place    *place // counts the buffers; nil: nobody does
	ended    <-chan struct{}
	held     int // bytes that place counts
	spill    [512]byte
}

// receive reads r to its end. A buffer is at most twice the size of what has been read into it, or that of the message
// before: if that is no larger than MaxMessage, or than 16 times what has been read. There is no buffer before the
// first bytes have come. CodeThrottled: there was no room for it.
func (v *receiver) receive(r io.Reader) (*Message, error) {
	m, n, err := v.readAll(r)
	if v.held > 0 {
		v.held = 0
		v.place.release()
	}
	if err != nil {
		if m != nil {
			m.Release()
		}
		return nil, err
	}
	if m == nil {
		m = newMessage(0)
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

// readAll returns the buffer, nil without bytes, and how many bytes were read into it.
func (v *receiver) readAll(r io.Reader) (m *Message, n int, _ error) {
	var store []byte
	for {
		into := store[n:]
		if len(into) == 0 {
			into = v.spill[:]
		}
		k, err := r.Read(into)
		if n == len(store) && k > 0 {
			larger, err := v.larger(n, k)
			if err != nil {
				return m, n, err
			}
			copy(larger.store, store)
			copy(larger.store[n:], v.spill[:k])
			if m != nil {
				m.Release()
			}
			m, store = larger, larger.store
		}
		n += k
		if err == io.EOF {
			return m, n, nil
		}
		if err != nil {
			return m, n, err
		}
	}
}

// larger is a buffer for a message of which n bytes fill the buffer before, and k more have come.
func (v *receiver) larger(n, k int) (*Message, error) {
	size := max(2*n, 1<<minClass)
	if v.expected > size && v.expected <= max(MaxMessage, 16*n) {
		size = v.expected // all at once: a message that holds a part and waits for more is in the way of others
	}
	size = min(size, max(v.limit, n+k))
	need := v.uncounted(size)
	switch {
	case need <= 0:
		return newMessage(size), nil
	case n >= uncounted:
		if err := v.place.reserve(int64(need), v.ended); err != nil {
			return nil, err
		}
	case !v.place.take(int64(need)): // the size before may say too much: a message waits only for what it has bytes for
		return newMessage(uncounted), nil
	}
	v.held += need
	return newMessage(size), nil
}

// uncounted is how many bytes of a buffer of a size have to be counted yet.
func (v *receiver) uncounted(size int) int {
	if v.place == nil {
		return 0
	}
	return roundUp(size) - uncounted - v.held
}
