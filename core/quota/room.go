package quota

import "sync/atomic"

// Room is how many bytes may still be taken of a budget that comes back only as others say. Safe for concurrent use,
// without a lock.
//
//	left = limit − taken, if that is above 0
type Room struct {
	taken atomic.Int64 // ever
	limit atomic.Int64 // of taken
}

// Left is how much may be taken; what is taken side by side may go over.
func (r *Room) Left() int { return int(max(0, r.limit.Load()-r.taken.Load())) }

// Take takes n bytes.
func (r *Room) Take(n int) { r.taken.Add(int64(n)) }

// Mark is the place of this look, for Set.
func (r *Room) Mark() int64 { return r.taken.Load() }

// Set gives the room that there was at mark.
func (r *Room) Set(room, mark int64) { r.limit.Store(mark + max(0, room)) }
