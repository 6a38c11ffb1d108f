package netmem

import (
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// BufferSize bounds the bytes written and not yet read, per direction. The ring starts small and doubles up to it.
const (
	BufferSize    = 256 << 10
	minBufferSize = 4 << 10
)

// buffer is one direction of a pipe: a ring of bytes, n of them from start on.
type buffer struct {
	mu            sync.Mutex // guards all below; given up while waiting
	readable      sync.Cond
	writable      sync.Cond
	ring          []byte
	start, n      int
	readDeadline  deadline
	writeDeadline deadline
	writeClosed   bool // no more bytes come
	readClosed    bool // nobody takes bytes any more
	held          bool // bytes and their end do not arrive for now
	reset         bool // closed both ways, by neither end
}

func newBuffer() *buffer {
	b := &buffer{}
	b.readable.L = &b.mu
	b.writable.L = &b.mu
	return b
}

func (b *buffer) read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		switch {
		case b.reset:
			return 0, syscall.ECONNRESET
		case b.readClosed:
			return 0, net.ErrClosed
		}
		if err := b.readDeadline.err(); err != nil {
			return 0, err
		}
		switch {
		case len(p) == 0:
			return 0, nil
		case b.held:
		case b.n > 0:
			return b.take(p), nil
		case b.writeClosed:
			return 0, io.EOF
		}
		b.readable.Wait()
	}
}

// take copies out as much as there is and fits.
func (b *buffer) take(p []byte) int {
	taken := 0
	for b.n > 0 && taken < len(p) {
		piece := b.ring[b.start:min(b.start+b.n, len(b.ring))]
		k := copy(p[taken:], piece)
		taken += k
		b.n -= k
		b.start = (b.start + k) % len(b.ring)
	}
	if b.n == 0 {
		b.start = 0
	}
	b.writable.Signal()
	return taken
}

func (b *buffer) write(p []byte) (written int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		switch {
		case b.reset:
			return written, syscall.ECONNRESET
		case b.writeClosed:
			return written, net.ErrClosed
		case b.readClosed:
			return written, io.ErrClosedPipe
		}
		if err := b.writeDeadline.err(); err != nil {
			return written, err
		}
		k := b.put(p)
		written += k
		if p = p[k:]; len(p) == 0 {
			if b.n < BufferSize {
				b.writable.Signal() // another writer may be waiting too
			}
			return written, nil
		}
		b.writable.Wait()
	}
}

// put copies in as much as there is room for.
func (b *buffer) put(p []byte) int {
	b.grow(min(b.n+len(p), BufferSize))
	put := 0
	for b.n < len(b.ring) && put < len(p) {
		at := (b.start + b.n) % len(b.ring)
		end := len(b.ring)
		if at < b.start {
			end = b.start
		}
		k := copy(b.ring[at:end], p[put:])
		put += k
		b.n += k
	}
	if put > 0 {
		b.readable.Signal()
	}
	return put
}

// grow makes the ring hold size bytes, at most BufferSize.
func (b *buffer) grow(size int) {
	if size <= len(b.ring) {
		return
	}
	length := max(len(b.ring), minBufferSize)
	for length < size {
		length *= 2
	}
	ring := make([]byte, length)
	if b.n > 0 {
		k := copy(ring, b.ring[b.start:min(b.start+b.n, len(b.ring))])
		copy(ring[k:], b.ring[:b.n-k])
	}
	b.ring, b.start = ring, 0
}

// closeWrite ends the stream after what is buffered; it reports whether this was the first call.
func (b *buffer) closeWrite() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := !b.writeClosed
	b.writeClosed = true
	b.writeDeadline.stop()
	b.wakeAll()
	return first
}

// closeRead drops what is buffered and refuses more.
func (b *buffer) closeRead() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.readClosed = true
	b.readDeadline.stop()
	b.ring, b.start, b.n = nil, 0, 0
	b.wakeAll()
}

// hold keeps bytes and their end from arriving, or lets them.
func (b *buffer) hold(held bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held = held
	b.wakeAll()
}

// breakOff drops what is buffered and fails who reads and writes, now and later.
func (b *buffer) breakOff() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reset = true
	b.readDeadline.stop()
	b.writeDeadline.stop()
	b.ring, b.start, b.n = nil, 0, 0
	b.wakeAll()
}

// expired wakes who waits. It takes the mutex so as not to slip in between their look at the deadline and their wait.
func (b *buffer) expired() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wakeAll()
}

func (b *buffer) wakeAll() {
	b.readable.Broadcast()
	b.writable.Broadcast()
}

func (b *buffer) setReadDeadline(t time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.readClosed || b.reset {
		return net.ErrClosed
	}
	b.readDeadline.set(t, b.expired)
	b.readable.Broadcast() // a deadline in the past ends those who wait
	return nil
}

func (b *buffer) setWriteDeadline(t time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.writeClosed || b.reset {
		return net.ErrClosed
	}
	b.writeDeadline.set(t, b.expired)
	b.writable.Broadcast()
	return nil
}
