package wire

import (
	"encoding/binary"
	"math"
	"unicode/utf8"

	"github.com/columbamq/columba/core"
)

// AppendPosition writes a body of one u64: a seq, or a number of bytes granted.
func AppendPosition(dst []byte, v uint64) []byte { return binary.LittleEndian.AppendUint64(dst, v) }

// DecodePosition reads a body that AppendPosition wrote.
func DecodePosition(body []byte) (uint64, error) {
	if len(body) != 8 {
		return 0, core.Errorf(core.CodeBadFrame, "position has %d bytes, not 8", len(body))
	}
	return binary.LittleEndian.Uint64(body), nil
}

func errShort(what string, n int) error {
	return core.Errorf(core.CodeBadFrame, "%s frame is cut off: its body has %d bytes", what, n)
}

// end fails unless everything was read, and no more.
func (c *cursor) end(what string) error {
	if c.short {
		return core.Errorf(core.CodeBadFrame, "%s frame is cut off", what)
	}
	if len(c.b) != 0 {
		return core.Errorf(core.CodeBadFrame, "%s frame has %d bytes too many", what, len(c.b))
	}
	return nil
}

// validRun reports whether count positions from base are all real ones: from 1, no overflow.
func validRun(base core.Seq, count uint32) bool {
	return base != 0 && count != 0 && uint64(base) <= math.MaxUint64-uint64(count)
}

// knownCodes are the codes a host answers in hot frames; decoding them allocates nothing.
var knownCodes = func() map[string]core.Code {
	known := make(map[string]core.Code)
	for _, c := range []core.Code{
		core.CodeBadArgument, core.CodeBadRecord, core.CodeBadToken, core.CodeTooLarge, core.CodeNotFound, core.CodeConflict,
		core.CodeStale, core.CodeMoved, core.CodeDisabled, core.CodeUnsupported, core.CodeThrottled, core.CodeUnavailable,
		core.CodeDeadline, core.CodeDraining, core.CodeFenced, core.CodeGap, core.CodeUnknown, core.CodeReadOnly,
		core.CodeNoSpace, core.CodeInternal,
	} {
		known[string(c)] = c
	}
	return known
}()

func codeOf(b []byte) core.Code {
	if c, ok := knownCodes[string(b)]; ok {
		return c
	}
	return core.Code(b)
}

func clipCode(c core.Code) core.Code { return c[:min(len(c), MaxReasonCode)] }

// clipText cuts b to at most n bytes without leaving half a character at its end.
func clipText(b []byte, n int) []byte {
	if len(b) <= n {
		return b
	}
	for i := n; i > n-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			return b[:i]
		}
	}
	return b[:n]
}
