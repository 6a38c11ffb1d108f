package outputhost

import (
	"bytes"
	"testing"

	"github.com/columbamq/columba/wire/ws"
)

// TestHold_CopiesOnlySmallParts: a batch of a backlog stays where it came in, a small part of a message does not keep all of it.
func TestHold_CopiesOnlySmallParts(t *testing.T) {
	const size = 64 << 10
	for _, test := range []struct {
		part   int
		copied bool
	}{{size, false}, {size / 10, false}, {size / smallPart, false}, {size/smallPart - 1, true}, {1, true}} {
		m := ws.Copy(make([]byte, size))
		part := m.Bytes[:test.part]
		got, b := hold(part, m)
		if copied := &got[0] != &part[0]; copied != test.copied || copied != (b == nil) || !bytes.Equal(got, part) {
			t.Errorf("%d bytes of %d: copied %v, buffer %v", test.part, size, copied, b)
		}
		b.Release()
		m.Release() // panics when it was not retained as often as released
	}
}
