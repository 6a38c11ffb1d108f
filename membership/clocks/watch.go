package clocks

import (
	"context"
	"time"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/core/skew"
	"github.com/columbamq/columba/membership"
)

// Every is how often Watch compares the clocks. It also does when membership changes.
const Every = 30 * time.Second

// soon is when Watch compares again while a host does not answer: membership shows a host a moment before it serves.
const soon = 5 * time.Second

// Watch compares the clocks of all members again and again until ctx ends, and gives what it reads to judge, on the
// caller's goroutine. Its arguments are those of Read.
func (c *Clocks) Watch(ctx context.Context, members membership.Monitor, judge func(readings map[core.HostID]skew.Reading, silent int)) {
	changed := make(chan struct{}, 1)
	defer members.Changed(func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})()
	next := time.NewTimer(Every)
	defer next.Stop()
	for {
		readings, silent := c.Read(ctx, members)
		if ctx.Err() != nil {
			return
		}
		judge(readings, silent)
		if silent > 0 {
			next.Reset(soon)
		} else {
			next.Reset(Every)
		}
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		case <-changed:
		}
	}
}
