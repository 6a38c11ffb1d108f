package cli

import (
	"context"
	"sync"

	"github.com/columbamq/columba/client"
)

// handoff passes deliveries from the goroutine that receives them to the one that prints them. The receiver leaves
// messages with the client library, which gives them back in time, as long as there is no room: it holds none that the
// output does not take.
type handoff struct {
	arrived chan struct{} // something was added, or the receiver has ended
	freed   chan struct{} // there is room again
	mu      struct {
		sync.Mutex
		queue  []*client.Delivery
		bytes  int
		room   int // messages that may be queued
		closed bool
		err    error // of the receiver
	}
}

// handoffBytes bounds what is queued; one larger message fits.
const handoffBytes = 256 << 10

func newHandoff() *handoff {
	h := &handoff{arrived: make(chan struct{}, 1), freed: make(chan struct{}, 1)}
	h.mu.room = 1
	return h
}

// add queues a delivery.
func (h *handoff) add(d *client.Delivery) {
	h.mu.Lock()
	h.mu.queue = append(h.mu.queue, d)
	h.mu.bytes += len(d.Body)
	h.mu.Unlock()
	wake(h.arrived)
}

// waitRoom waits until one more may be queued; false: ctx has ended.
func (h *handoff) waitRoom(ctx context.Context, maxBytes int) bool {
	for {
		h.mu.Lock()
		room := len(h.mu.queue) < h.mu.room && (len(h.mu.queue) == 0 || h.mu.bytes < maxBytes)
		h.mu.Unlock()
		if room {
			return ctx.Err() == nil
		}
		select {
		case <-h.freed:
		case <-ctx.Done():
			return false
		}
	}
}

// close says that no more will be added, and why.
func (h *handoff) close(err error) {
	h.mu.Lock()
	h.mu.closed, h.mu.err = true, err
	h.mu.Unlock()
	wake(h.arrived)
}

// take is all that is queued, and whether more may come. There is no room until the next setRoom.
func (h *handoff) take() (batch []*client.Delivery, open bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	batch = h.mu.queue
	h.mu.queue, h.mu.bytes = nil, 0
	if len(batch) > 0 {
		h.mu.room = 0
	}
	return batch, !h.mu.closed
}

// setRoom says how many messages the printer takes next.
func (h *handoff) setRoom(n int) {
	h.mu.Lock()
	h.mu.room = n
	h.mu.Unlock()
	wake(h.freed)
}

// over reports whether nothing is queued and nothing will be.
func (h *handoff) over() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.closed && len(h.mu.queue) == 0
}

func (h *handoff) failure() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.err
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
