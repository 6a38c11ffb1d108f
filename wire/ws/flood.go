package ws

import (
	"encoding/binary"
	"io"
	"math"
	"time"

	"github.com/columbamq/columba/core"
)

// Limits of frames that cost the host more than they carry: pings, pongs, messages without bytes, and small fragments.
// A peer of this package sends at most a ping a second, fragments of 256 KiB, and no empty message.
const (
	cheapFrames   = 10  // a second
	cheapAtOnce   = 100 // after a pause
	smallFragment = 1 << 10
)

var (
	errFlood = core.Errorf(core.CodeThrottled, "the peer sends more than %d control frames, empty messages and fragments below %d bytes a second; "+
		"send pings less often, and messages in one frame", cheapFrames, smallFragment)
	errEmptyFragment = core.Errorf(core.CodeThrottled, "the peer sends an empty fragment; send messages in one frame")
)

// floodGuard reads a socket, counts cheap frames, and fails when there are too many. It parses the heads of frames
// itself: the library handles control frames and empty fragments in a loop that its user does not see. Whether a head
// is valid is the library's matter.
type floodGuard struct {
	from    io.Reader
	head    [14]byte
	have    int   // bytes of head
	payload int64 // bytes of the frame that have not come

	tokens   int
	refilled time.Time
}

func newFloodGuard(from io.Reader) *floodGuard {
	return &floodGuard{from: from, tokens: cheapAtOnce, refilled: time.Now()}
}

func (g *floodGuard) Read(b []byte) (int, error) {
	n, err := g.from.Read(b)
	if refused := g.inspect(b[:n]); refused != nil {
		return 0, refused
	}
	return n, err
}

func (g *floodGuard) inspect(b []byte) error {
	for len(b) > 0 {
		if g.payload > 0 {
			n := min(g.payload, int64(len(b)))
			g.payload -= n
			b = b[n:]
			continue
		}
		n := copy(g.head[g.have:g.headSize()], b)
		g.have += n
		b = b[n:]
		if g.have < g.headSize() { // which is known better with each byte
			continue
		}
		g.payload = g.length()
		g.have = 0
		if err := g.admit(); err != nil {
			return err
		}
	}
	return nil
}

// headSize is how many bytes the head has, as far as its first bytes tell.
func (g *floodGuard) headSize() int {
	if g.have < 2 {
		return 2
	}
	size := 2
	switch g.head[1] & 0x7f {
	case 126:
		size += 2
	case 127:
		size += 8
	}
	if g.head[1]&0x80 != 0 {
		size += 4 // mask
	}
	return size
}

// length is the size of the frame's payload.
func (g *floodGuard) length() int64 {
	switch n := g.head[1] & 0x7f; n {
	case 126:
		return int64(binary.BigEndian.Uint16(g.head[2:]))
	case 127:
		return int64(min(binary.BigEndian.Uint64(g.head[2:]), math.MaxInt64))
	default:
		return int64(n)
	}
}

// admit takes a token for a frame that is cheap.
func (g *floodGuard) admit() error {
	final, kind := g.head[0]&0x80 != 0, g.head[0]&0x0f
	control := kind >= 8
	switch {
	case !control && !final && g.payload == 0:
		return errEmptyFragment
	case control, !final && g.payload < smallFragment, final && kind != 0 && g.payload == 0:
		return g.spend()
	}
	return nil
}

func (g *floodGuard) spend() error {
	if g.tokens == 0 {
		now := time.Now()
		g.tokens = min(cheapAtOnce, int(now.Sub(g.refilled).Seconds()*cheapFrames))
		if g.tokens == 0 {
			return errFlood
		}
		g.refilled = now
	}
	g.tokens--
	return nil
}
