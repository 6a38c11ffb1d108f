package inputhost

import (
	"context"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/wire"
	"github.com/columbamq/columba/wire/ws"
)

const (
	// heardOf: a link that was heard within it is alive.
	heardOf = 2 * time.Second
	// probeFor is how long a link that was not has to answer. After a cut of the network a new connection works at once,
	// one from before it only when the kernel tries again, up to as late as the cut was long.
	probeFor = time.Second
)

// storeLink is a link to a store which has just been heard: one that does not answer ends, with all its streams, and
// another is dialled.
func (h *Host) storeLink(ctx context.Context, address string) (*ws.Mux, error) {
	link, err := h.deps.Peers.Link(ctx, address, "/v1/store")
	if err != nil || alive(ctx, link.Conn) || ctx.Err() != nil {
		return link, err
	}
	over := make(ending)
	if _, err := link.Open(over); err == nil {
		link.Conn.Abort(core.Errorf(core.CodeUnavailable, "store at %s gave no sign of life for %s", address, link.Conn.Silent().Round(time.Millisecond)))
		select {
		case <-over:
		case <-ctx.Done():
		}
	}
	return h.deps.Peers.Link(ctx, address, "/v1/store")
}

// alive asks a connection that was silent for a sign of life.
func alive(ctx context.Context, c *ws.Conn) bool {
	if c.Silent() < heardOf {
		return true
	}
	began := time.Now()
	c.Ping()
	for wait := 500 * time.Microsecond; ctx.Err() == nil; wait = min(2*wait, 20*time.Millisecond) {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		passed := time.Since(began)
		if c.Silent() <= passed {
			return true
		}
		if passed >= probeFor {
			break
		}
	}
	return false
}

// ending is a stream that waits for the end of its link.
type ending chan struct{}

// HandleFrame implements ws.StreamHandler.
func (e ending) HandleFrame(wire.Frame, *ws.Message) {}

// Closed implements ws.StreamHandler.
func (e ending) Closed(error) { close(e) }
