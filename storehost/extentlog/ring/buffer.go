package ring

import "encoding/binary"

// Buffer is the memory of one group, which is written as it is. It is used again and again by one goroutine.
type Buffer struct{ b []byte }

// Reset empties it.
func (b *Buffer) Reset() { b.b = b.b[:0] }

// Len is how many bytes the body has.
func (b *Buffer) Len() int { return max(len(b.b)-headerLen, 0) }

// Grow adds n bytes to the body, for the caller to fill, and returns them. They are valid until the next Grow.
func (b *Buffer) Grow(n int) []byte {
	if len(b.b) == 0 {
		b.b = append(b.b, make([]byte, headerLen)...)
	}
	at := len(b.b)
	if need := at + n; need > cap(b.b) {
		grown := make([]byte, at, max(need+blockSize, 2*cap(b.b)))
		copy(grown, b.b)
		b.b = grown
	}
	b.b = b.b[:at+n]
	return b.b[at:]
}

// whole is the group, with room for its header, up to a border of blocks; what is behind the body is zero.
func (b *Buffer) whole() []byte {
	n := b.Len()
	b.Grow(int(span(n)) - headerLen - n)
	clear(b.b[headerLen+n:])
	whole := b.b
	b.b = b.b[:headerLen+n]
	return whole
}

// summary is the group of a summary that ends at the end of a segment of so many bytes, and where it begins.
func (b *Buffer) summary(size int64) (group []byte, at int64) {
	n := b.Len()
	room := SizeForSummary(n)
	at = size - room
	rest := b.Grow(int(room) - headerLen - n)
	clear(rest)
	trailer := rest[len(rest)-trailerLen:]
	binary.LittleEndian.PutUint32(trailer, uint32(n))
	binary.LittleEndian.PutUint32(trailer[4:], uint32(at))
	return b.b, at
}
