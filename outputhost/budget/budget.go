// Package budget limits the bytes that all holders of an output host hold together.
package budget

import "sync/atomic"

// Budget bounds what all holders of one kind hold: shares the messages that were read and not settled, connections of
// consumers the deliveries that wait to be written. While there is plenty, a holder may hold as much as its own limit;
// the less is left, the nearer every holder's part comes to an equal one. A holder above its part takes nothing more
// until it has let go of some of it; each has at least MinPart, so none stops for good. Safe for concurrent use.
type Budget struct {
	bound   int
	held    atomic.Int64 // bytes, of all holders
	holders atomic.Int64 // those that hold something
}

// MinPart is what a holder may hold, however many there are.
const MinPart = 128 << 10

// New is a budget of so many bytes.
func New(bound int) *Budget { return &Budget{bound: bound} }

// Count notes that a holder that held so many bytes holds others now.
func (b *Budget) Count(before, now int) {
	b.held.Add(int64(now - before))
	switch {
	case before == 0 && now > 0:
		b.holders.Add(1)
	case before > 0 && now == 0:
		b.holders.Add(-1)
	}
}

// Held is what all holders hold.
func (b *Budget) Held() int64 { return b.held.Load() }

// Room is how many bytes more a holder may take that holds so many.
func (b *Budget) Room(held int) int {
	free := b.bound - int(b.held.Load())
	if free > b.bound/2 {
		return max(free/2, MinPart-held)
	}
	part := b.bound / max(int(b.holders.Load()), 1)
	return max(min(free, part-held), MinPart-held, 0)
}
