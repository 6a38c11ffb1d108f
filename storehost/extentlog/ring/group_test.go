package ring

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// FuzzHeader: any bytes are a header or none. A header that is taken for one is written again as it was.
func FuzzHeader(f *testing.F) {
	group := make([]byte, blockSize)
	h := header{kind: Records, length: 100, serial: 7, number: 9, secret: 5, durable: 8, before: 3, run: core.RunID{ID: core.NewID(time.Unix(1, 0))}}
	h.put(group)
	f.Add(group[:headerLen])
	f.Add(group[:headerLen-1])
	f.Fuzz(func(t *testing.T, b []byte) {
		h, ok := decodeHeader(b)
		if !ok {
			return
		}
		if h.length > blockSize-headerLen {
			return
		}
		again := make([]byte, headerLen+int(h.length))
		was := h
		h.put(again)
		// The sums depend on the body, which is not at hand, and reserved bytes are written as zero.
		if !bytes.Equal(again[12:52], b[12:52]) || h.number != was.number || again[52] != b[52] || !bytes.Equal(again[56:headerLen], b[56:headerLen]) {
			t.Errorf("%x is read as %+v, which is written as %x", b[:headerLen], was, again[:headerLen])
		}
	})
}

// TestHeader_OfALaterVersion: it is refused, and not taken for the end of the log.
func TestHeader_OfALaterVersion(t *testing.T) {
	group := make([]byte, blockSize)
	h := header{kind: Records, serial: 1, number: 1}
	h.put(group)
	group[53] = FormatVersion + 1
	binary.LittleEndian.PutUint32(group[4:], crc32.Checksum(group[8:headerLen], castagnoli))
	later, ok := decodeHeader(group)
	if err := later.known(); !ok || core.CodeOf(err) != core.CodeNewerFormat {
		t.Errorf("got %v, want %q", err, core.CodeNewerFormat)
	}
}
