package outputhost

import "sync/atomic"

// budget bounds what all shares of the host hold: messages read and not settled. While there is plenty, a share may hold as much as its
// own limit; the less is left, the nearer every share's part comes to an equal one. A share above its part reads no further until it
// has handed out and seen settled what it holds; each has at least minPart, so none stops for good. Safe for concurrent use.
type budget struct {
	bound   int
	held    atomic.Int64 // bytes, of all shares
	holders atomic.Int64 // shares that hold something
}

// minPart is what a share may hold, however many there are.
const minPart = 128 << 10

// room is how many bytes a share may read that holds so many.
func (b *budget) room(held int) int {
	free := b.bound - int(b.held.Load())
	if free > b.bound/2 {
		return max(free/2, minPart-held)
	}
	part := b.bound / max(int(b.holders.Load()), 1)
	return max(min(free, part-held), minPart-held, 0)
}
