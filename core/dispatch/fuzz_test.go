package dispatch

import (
	"encoding/binary"
	"encoding/hex"
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
	f.Add([]byte{plainVersion, 0, 0, 0})
	f.Add([]byte{bitsVersion, 3, 1, 0, 3, 0x55, 0x55, 0x55, 1, 1, 2, 0, 1, 20})
	f.Add([]byte{plainVersion, 3, 1, 1, 0, 2, 0, 0, 0, 1, 20, 0, 5, 2, 3})
	f.Add([]byte{stateVersion, 2, PolicyBreaker, 1, 'x', 9, 0, 0, 3, 0, 1, 0, 0, 3, 1, 1, 0, 0x83, 2, 1, 20})
	for _, text := range goldens {
		blob, err := hex.DecodeString(text)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(blob[:len(blob)-crc32.Size])
	}
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
		fuzzTimers(t, st)
	})
}

// fuzzTimers makes a share of a timer extent of a state, and offers it the first messages that are not done.
func fuzzTimers(t *testing.T, st State) {
	now := time.Unix(3, 0)
	g := NewGroup(core.GroupSpec{}.WithDefaults())
	s := g.AddTimers(core.ExtentID{}, st, now)
	g.Tick(now)
	var seqs []core.Seq
	for seq := st.done.NextUndone(1); seq != 0 && len(seqs) < 20; seq = st.done.NextUndone(seq + 1) {
		seqs = append([]core.Seq{seq}, seqs...)
	}
	if len(seqs) == 0 {
		return
	}
	if err := s.OfferDue(dueRecords(nil, nil, seqs...), now); err != nil {
		t.Fatal(err)
	}
	runs := g.Take(1, Credit{Messages: 10, Bytes: 1 << 20}, now, nil)
	for _, r := range runs {
		s.Ack(r.Base, r.Count, r.Attempt, now, nil)
	}
	if err := g.check(); err != nil {
		t.Fatal(err)
	}
	blob, _ := s.Checkpoint(nil, false, now)
	if _, err := DecodeState(blob); err != nil {
		t.Fatalf("the checkpoint %x does not decode: %v", blob, err)
	}
}
