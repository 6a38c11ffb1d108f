package inputhost

import (
	"context"

	"github.com/columbamq/columba/core"
)

// gate bounds how many calls are under way. Calls that a publisher waits for get in before those that nobody waits for,
// which may take up a quarter of the room.
type gate struct {
	room chan struct{}
	calm chan struct{}
}

func newGate(n int) gate {
	return gate{room: make(chan struct{}, n), calm: make(chan struct{}, max(n/4, 1))}
}

var errBusy = core.Errorf(core.CodeUnavailable, "too many extents of this host are being opened or sealed")

// enter waits for room, for at most callTimeout: who waits may have deadlines to look after. leave must be called
// unless it fails, which it does with errBusy, or when ctx ends.
func (g gate) enter(ctx context.Context, urgent bool) (leave func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, errBusy)
	defer cancel()
	if !urgent {
		select {
		case g.calm <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	leave = func() {
		<-g.room
		if !urgent {
			<-g.calm
		}
	}
	select {
	case g.room <- struct{}{}:
		return leave, nil
	case <-ctx.Done():
		if !urgent {
			<-g.calm
		}
		return nil, context.Cause(ctx)
	}
}
