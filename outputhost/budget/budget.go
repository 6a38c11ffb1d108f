// Package budget limits the bytes that all shares of an output host hold together.
package budget

import "sync/atomic"

// Budget bounds what all shares of the host hold: messages read and not settled. While there is plenty, a share may hold as much as its
// own limit; the less is left, the nearer every share's part comes to an equal one. A share above its part reads no further until it
// has handed out and seen settled what it holds; each has at least MinPart, so none stops for good. Safe for concurrent use.
type Budget struct {
	bound   int
	held    atomic.Int64 // bytes, of all shares
	holders atomic.Int64 // shares that hold something
}

// MinPart is what a share may hold, however many there are.
const MinPart = 128 << 10

// New is a budget of so many bytes.
func New(bound int) *Budget { return &Budget{bound: bound} }

// Count notes that a share that held so many bytes holds others now.
func (b *Budget) Count(before, now int) {
	b.held.Add(int64(now - before))
	switch {
	case before == 0 && now > 0:
		b.holders.Add(1)
	case before > 0 && now == 0:
		b.holders.Add(-1)
	}
}

// Held is what all shares hold.
func (b *Budget) Held() int64 { return b.held.Load() }

// Room is how many bytes a share may read that holds so many.
func (b *Budget) Room(held int) int {
	free := b.bound - int(b.held.Load())
	if free > b.bound/2 {
		return max(free/2, MinPart-held)
	}
	part := b.bound / max(int(b.holders.Load()), 1)
	return max(min(free, part-held), MinPart-held, 0)
}
