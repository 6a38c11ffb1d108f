package wire

import (
	"encoding/binary"

	"github.com/columbamq/columba/core"
)

// AckResult is TypeAckResult: settlements that were refused.
// Body: n u32 | entries {handle u32, attempt u16, code_len u16, seq u64, code}.
type AckResult struct {
	Entries []AckFailure
}

// AckFailure is one refused settlement.
type AckFailure struct {
	Handle  uint32
	Seq     core.Seq
	Attempt uint16
	Code    core.Code
}

const ackFailureLen = 16 // the fixed part

// Append writes the body. A Code longer than MaxReasonCode is cut.
func (a *AckResult) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(a.Entries)))
	for _, e := range a.Entries {
		code := clipCode(e.Code)
		dst = binary.LittleEndian.AppendUint32(dst, e.Handle)
		dst = binary.LittleEndian.AppendUint16(dst, e.Attempt)
		dst = binary.LittleEndian.AppendUint16(dst, uint16(len(code)))
		dst = binary.LittleEndian.AppendUint64(dst, uint64(e.Seq))
		dst = append(dst, code...)
	}
	return dst
}

// Decode reads a body into a, reusing Entries. It allocates for more entries than fit and for codes outside the
// catalogue only.
func (a *AckResult) Decode(body []byte) error {
	c := cursor{b: body}
	n := c.u32()
	a.Entries = a.Entries[:0]
	if uint64(n)*ackFailureLen > uint64(len(c.b)) {
		return errShort("ack result", len(body))
	}
	for range n {
		e := AckFailure{Handle: c.u32(), Attempt: c.u16()}
		codeLen := int(c.u16())
		e.Seq = core.Seq(c.u64())
		if codeLen > MaxReasonCode || e.Seq == 0 {
			return core.Errorf(core.CodeBadFrame, "ack result for seq %d with a code of %d bytes is malformed", e.Seq, codeLen)
		}
		e.Code = codeOf(c.take(codeLen))
		if c.short {
			return errShort("ack result", len(body))
		}
		a.Entries = append(a.Entries, e)
	}
	return c.end("ack result")
}
