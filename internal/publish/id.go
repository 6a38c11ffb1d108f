package publish

import (
	crand "crypto/rand"
	"encoding/binary"
	"math/rand/v2"

	"github.com/columbamq/columba/core"
)

// idSource makes message ids that sort in the order of their making: the milliseconds, a 12-bit counter within them, 62
// random bits. Not safe for concurrent use.
type idSource struct {
	millis  uint64
	counter uint64
	random  *rand.ChaCha8
}

func newIDSource() idSource {
	var seed [32]byte
	crand.Read(seed[:]) // never fails: see crypto/rand
	return idSource{random: rand.NewChaCha8(seed)}
}

// next makes an id for the instant, or for the latest one before if the clock went back. A millisecond that has no
// counter left borrows from the next one.
func (s *idSource) next(unixMillis int64) core.MessageID {
	if ms := uint64(unixMillis); ms > s.millis {
		s.millis, s.counter = ms, 0
	} else if s.counter++; s.counter > 0xfff {
		s.millis, s.counter = s.millis+1, 0
	}
	var id core.ID
	binary.BigEndian.PutUint64(id[:8], s.millis<<16|0x7000|s.counter)
	binary.BigEndian.PutUint64(id[8:], s.random.Uint64()&(1<<62-1)|1<<63)
	return core.MessageID{ID: id}
}
