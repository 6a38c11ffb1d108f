package wire

import (
	"encoding/binary"

	"github.com/columbamq/columba/core"
)

// cursor reads fixed and length-prefixed fields off b. Past the end it yields zeroes and remembers that it was short,
// so that a decoder checks once.
type cursor struct {
	b     []byte
	short bool
}

func (c *cursor) take(n int) []byte {
	if n > len(c.b) {
		c.short, c.b = true, nil
		return nil
	}
	v := c.b[:n:n]
	c.b = c.b[n:]
	return v
}

func (c *cursor) u8() uint8 {
	if v := c.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (c *cursor) u16() uint16 {
	if v := c.take(2); v != nil {
		return binary.LittleEndian.Uint16(v)
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if v := c.take(4); v != nil {
		return binary.LittleEndian.Uint32(v)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if v := c.take(8); v != nil {
		return binary.LittleEndian.Uint64(v)
	}
	return 0
}

func (c *cursor) i64() int64 { return int64(c.u64()) }

func (c *cursor) id() (id core.ID) {
	copy(id[:], c.take(len(id)))
	return id
}

// shortBytes reads a value with a one-byte length, longBytes one with a two-byte length.
func (c *cursor) shortBytes() []byte { return c.take(int(c.u8())) }
func (c *cursor) longBytes() []byte  { return c.take(int(c.u16())) }
