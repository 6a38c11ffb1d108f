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

// held are the last batches of an extent: those that are not in the database yet. commitLoop adds and cuts, settleLoop
// drops what was cut off, the keeper of the ring drops what it has drained, anybody reads.
type held struct {
	mu       sync.Mutex
	first    core.Seq // of the first batch; 0: there is none
	batches  []heldBatch
	cuts     int           // how often batches were cut off
	leaving  []leaving     // the newest first
	mixed    bool          // see mix
	drains   int           // that had batches of the extent
	draining chan struct{} // closed when the drain under way is over; nil: none is
}

// leaving are batches that were cut off by a step that is not durable yet. Nobody reads them any more. A drain puts
// them into the database all the same: should the power go before the step is durable, the extent still has them.
type leaving struct {
	cut     int // the number of the cut
	first   core.Seq
	batches []heldBatch
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

// cut cuts off the batches beyond l. dropCut drops them when that is durable.
func (h *held) cut(l core.Seq) (number int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := len(h.batches)
	for i > 0 && h.batches[i-1].last > l {
		i--
	}
	h.cuts++
	if beyond := h.batches[i:]; len(beyond) > 0 {
		first := h.first
		if i > 0 {
			first = h.batches[i-1].last + 1
		}
		h.leaving = slices.Insert(h.leaving, 0, leaving{h.cuts, first, slices.Clone(beyond)})
	}
	h.batches = slices.Clip(h.batches[:i]) // those who read go on with what was
	return h.cuts
}

// dropCut drops what was cut off up to that cut, and returns it.
func (h *held) dropCut(number int) (gone []heldBatch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leaving = slices.DeleteFunc(h.leaving, func(l leaving) bool {
		if l.cut <= number {
			gone = append(gone, l.batches...)
		}
		return l.cut <= number
	})
	return gone
}

// upTo is how many of the first batches are in the uses of segments up to a serial.
func upTo(batches []heldBatch, serial uint64) (n int) {
	for n < len(batches) && batches[n].serial <= serial {
		n++
	}
	return n
}

// drain begins to drain the batches up to a use of a segment, and returns them with the base of the first one. There
// are none once a removal of the extent is durable. If there are some, the caller ends the drain by drainedTo.
func (h *held) drain(serial uint64) (run []heldBatch, base core.Seq) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := upTo(h.batches, serial)
	run, base = h.batches[:n:n], h.first
	for _, l := range h.leaving { // each continues the one before
		if n := upTo(l.batches, serial); n > 0 {
			if len(run) == 0 {
				base = l.first
			}
			run = append(run, l.batches[:n]...)
		}
	}
	if len(run) > 0 {
		h.drains++
		if h.draining == nil {
			h.draining = make(chan struct{})
		}
		h.mixed = true
	}
	return run, base
}

// drainedTo ends a drain, which has put the batches up to a use of a segment into the database, and returns them. 0: it
// has failed.
func (h *held) drainedTo(serial uint64) (gone []heldBatch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := upTo(h.batches, serial); n > 0 {
		h.first = h.batches[n-1].last + 1
		gone, h.batches = slices.Clone(h.batches[:n]), slices.Clone(h.batches[n:])
	}
	for i := range h.leaving {
		l := &h.leaving[i]
		if n := upTo(l.batches, serial); n > 0 {
			gone = append(gone, l.batches[:n]...)
			l.first, l.batches = l.batches[n-1].last+1, slices.Clone(l.batches[n:])
		}
	}
	if h.draining != nil {
		close(h.draining)
		h.draining = nil
	}
	return gone
}

// underway is closed when the drain that is under way is over; nil: none is. drains is how many there were.
func (h *held) underway() (over <-chan struct{}, drains int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.draining, h.drains
}
