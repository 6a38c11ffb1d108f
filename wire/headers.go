package wire

import (
	"encoding/binary"

	"github.com/columbamq/columba/core"
)

// AppendHeaders encodes name/value pairs for Record.Headers: count u16, then for each a u16 length and the bytes of the
// name and of the value. No pairs give nothing. CodeTooLarge when the whole exceeds MaxPublished; CodeBadArgument for
// an empty name.
func AppendHeaders(dst []byte, pairs ...[2]string) ([]byte, error) {
	if len(pairs) == 0 {
		return dst, nil
	}
	size := 2
	for _, p := range pairs {
		if p[0] == "" {
			return dst, core.Errorf(core.CodeBadArgument, "a header has no name")
		}
		size += 4 + len(p[0]) + len(p[1])
	}
	if size > MaxPublished {
		return dst, core.Errorf(core.CodeTooLarge, "headers have %d bytes; at most %d are allowed", size, MaxPublished)
	}
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(pairs)))
	for _, p := range pairs {
		for _, s := range p {
			dst = binary.LittleEndian.AppendUint16(dst, uint16(len(s)))
			dst = append(dst, s...)
		}
	}
	return dst, nil
}

// EachHeader calls yield for every pair until it returns false. CodeBadRecord when headers is malformed.
func EachHeader(headers []byte, yield func(name, value []byte) bool) error {
	if !walkHeaders(headers, yield) {
		return core.Errorf(core.CodeBadRecord, "headers are malformed")
	}
	return nil
}

func validHeaders(headers []byte) bool {
	return walkHeaders(headers, nil)
}

// walkHeaders reports whether what it read was well formed: all of it, or up to where yield (may be nil) stopped.
func walkHeaders(headers []byte, yield func(name, value []byte) bool) bool {
	if len(headers) == 0 {
		return true
	}
	c := cursor{b: headers}
	count := int(c.u16())
	for range count {
		name, value := c.longBytes(), c.longBytes()
		if c.short || len(name) == 0 {
			return false
		}
		if yield != nil && !yield(name, value) {
			return true
		}
	}
	return count > 0 && len(c.b) == 0
}
