package lifecycle

import (
	"context"
	"time"
)

// Every calls round once in each period until ctx ends; the first call is a period away. A round that takes longer than
// the period delays the next one: rounds never run side by side and never pile up.
func Every(ctx context.Context, period time.Duration, round func(ctx context.Context)) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			round(ctx)
		}
	}
}
