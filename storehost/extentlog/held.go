package extentlog

import (
	"math"
	"slices"
	"sync"

	"github.com/columbamq/columba/core"
)

// heldBatch is a batch that only the ring has.
type heldBatch struct {
	last   core.Seq
	serial uint64 // of the use of the segment that it is in
	offset uint32
	length uint32
}

// held are the last batches of an extent: those that are not in the database yet. commitLoop adds and cuts, the keeper
// of the ring drops what it has drained, anybody reads.
type held struct {
	mu       sync.Mutex
	first    core.Seq // of the first batch; 0: there is none
	batches  []heldBatch
	mixed    bool          // see mix
	draining chan struct{} // closed when the drain under way is over; nil: none is
}

// add appends a batch; first is its base.
func (h *held) add(first core.Seq, b heldBatch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.batches) == 0 {
		h.first = first
	}
	h.batches = append(h.batches, b)
}

// from are the batches from the one that holds a seq on, and the base of the first of them. If that one is in the
// database, there are none, and the database has all up to
// drained.
func (h *held) from(seq core.Seq) (run []heldBatch, base, drained core.Seq) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.batches) == 0 {
		return nil, 0, math.MaxUint64
	}
	if seq < h.first {
		return nil, 0, h.first - 1
	}
	i, _ := slices.BinarySearchFunc(h.batches, seq, func(b heldBatch, seq core.Seq) int {
		if b.last < seq {
			return -1
		}
		return 1
	})
	base = h.first
	if i > 0 {
		base = h.batches[i-1].last + 1
	}
	return h.batches[i:], base, h.first - 1
}

// drained is up to where the database has the extent, of which last is the last seq.
func (h *held) drained(last core.Seq) core.Seq {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.batches) == 0 {
		return last
	}
	return h.first - 1
}

// ringOnly reports whether the database never got any batch of the extent.
func (h *held) ringOnly() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.mixed
}

// mix notes that the database may have batches of the extent, also some that the ring has.
func (h *held) mix() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mixed = true
}

// cut drops the batches beyond l, and returns them.
func (h *held) cut(l core.Seq) []heldBatch {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := len(h.batches)
	for i > 0 && h.batches[i-1].last > l {
		i--
	}
	beyond := h.batches[i:]
	h.batches = slices.Clip(h.batches[:i]) // those who read go on with what was
	return beyond
}

// drain begins to drain the batches up to a use of a segment, and returns them with the base of the first one. There
// are none when the extent is removed. If there are some, the caller ends the drain by drainedTo.
func (h *held) drain(serial uint64) (run []heldBatch, base core.Seq) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for n < len(h.batches) && h.batches[n].serial <= serial {
		n++
	}
	if n > 0 && h.draining == nil {
		h.draining = make(chan struct{})
	}
	h.mixed = h.mixed || n > 0
	return h.batches[:n:n], h.first
}

// drainedTo ends a drain, which has put the batches up to a use of a segment into the database, and returns them. 0: it
// has failed.
func (h *held) drainedTo(serial uint64) (gone []heldBatch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for n < len(h.batches) && h.batches[n].serial <= serial {
		n++
	}
	if n > 0 {
		h.first = h.batches[n-1].last + 1
		gone, h.batches = h.batches[:n], slices.Clone(h.batches[n:])
	}
	if h.draining != nil {
		close(h.draining)
		h.draining = nil
	}
	return gone
}

// underway is closed when the drain that is under way is over; nil: none is.
func (h *held) underway() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.draining
}
