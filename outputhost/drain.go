package outputhost

import (
	"context"
	"time"
)

// transfersWait bounds how long a host that ends waits for the outcomes of appends.
const transfersWait = 2 * time.Second

// awaitTransfers waits until no append to a built-in queue is under way. A last checkpoint before that would have the
// next owner take the message for perhaps appended, and wait for dispatch.TransferDoubt. No append begins while the host
// drains.
func (h *Host) awaitTransfers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, transfersWait)
	defer cancel()
	for h.appends() {
		select {
		case <-h.transferred:
		case <-ctx.Done():
			return
		}
	}
}

// appends reports whether the outcome of an append is missing.
func (h *Host) appends() bool {
	for _, g := range h.groupList() {
		g.mu.Lock()
		appends := g.mu.rules.Appends()
		g.mu.Unlock()
		if appends {
			return true
		}
	}
	return false
}
