package inputhost

import (
	"testing"

	"github.com/columbamq/columba/wire/ws"
)

// A waiting record keeps its own bytes, not those of a large message that it was a small part of.
func TestKeep(t *testing.T) {
	m := ws.Copy(make([]byte, 100<<10))
	small, hold := keep(m.Bytes[:1000], m)
	if hold == m || len(small) != 1000 || &small[0] == &m.Bytes[0] {
		t.Errorf("a small part of a large message keeps the message: %d bytes", len(small))
	}
	hold.Release()
	large, hold := keep(m.Bytes[:50<<10], m)
	if hold != m || &large[0] != &m.Bytes[0] {
		t.Error("a large part of a message was copied")
	}
	hold.Release()
	m.Release()
}
