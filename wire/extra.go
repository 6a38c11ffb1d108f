package wire

import "encoding/binary"

// Types of a record's extra fields. A reader skips those it does not know.
const (
	extraLife    uint16 = 1
	extraHistory uint16 = 2
)

// extraField is one type-length-value field.
type extraField struct {
	kind         uint16
	value, whole []byte
}

// allExtra yields the fields of a record's extra.
func allExtra(extra []byte) func(yield func(extraField) bool) {
	return func(yield func(extraField) bool) {
		for len(extra) >= 4 {
			n := 4 + int(binary.LittleEndian.Uint16(extra[2:]))
			if n > len(extra) || !yield(extraField{binary.LittleEndian.Uint16(extra), extra[4:n:n], extra[:n:n]}) {
				return
			}
			extra = extra[n:]
		}
	}
}

// eachExtra yields the values of the fields of one type.
func eachExtra(extra []byte, kind uint16) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for f := range allExtra(extra) {
			if f.kind == kind && !yield(f.value) {
				return
			}
		}
	}
}

// setExtra is a copy of valid extra fields with one of a type in place of those it has; an empty value removes them.
func setExtra(extra []byte, kind uint16, value []byte) []byte {
	var out []byte
	for f := range allExtra(extra) {
		if f.kind != kind {
			out = append(out, f.whole...)
		}
	}
	if len(value) == 0 {
		return out
	}
	out = binary.LittleEndian.AppendUint16(out, kind)
	out = binary.LittleEndian.AppendUint16(out, uint16(len(value)))
	return append(out, value...)
}
