package dispatch

import (
	"encoding/binary"
	"hash/crc32"
	"testing"
	"time"

	"github.com/columbamq/columba/core"
)

// seal appends the checksum that a blob needs to be looked at.
func seal(body []byte) []byte {
	return binary.LittleEndian.AppendUint32(append([]byte(nil), body...), crc32.Checksum(body, castagnoli))
}

func FuzzDecodeState(f *testing.F) {
	f.Add([]byte{rangesVersion, 0, 0, 0})
	f.Add([]byte{stateVersion, 3, 1, 0, 3, 0x55, 0x55, 0x55, 1, 1, 2, 0, 1, 20})
	f.Add([]byte{rangesVersion, 3, 1, 1, 0, 2, 0, 0, 0, 1, 20, 0, 5, 2, 3})
	f.Fuzz(func(t *testing.T, body []byte) {
		st, err := DecodeState(seal(body))
		if err != nil || len(st.messages) > 1000 {
			return
		}
		g := NewGroup(core.GroupSpec{}.WithDefaults())
		s := g.AddShare(core.ExtentID{}, st, time.Unix(0, 0))
		g.Tick(time.Unix(1, 0))
		blob, token := s.Checkpoint(nil, false, time.Unix(2, 0))
		s.Saved(token)
		if _, err := DecodeState(blob); err != nil {
			t.Fatalf("%x decodes, but its checkpoint %x does not: %v", body, blob, err)
		}
	})
}
