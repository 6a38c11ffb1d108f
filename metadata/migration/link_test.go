package migration

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/columbamq/columba/core"
)

// TestLink_WritesAtOnce: a target that times out when it has too many writes gets fewer, and one that answers gets
// more.
func TestLink_WritesAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		bears       int64 // writes at once
		least, most int   // limit in the end
		again       int   // at most
	}{
		"it bears one":       {1, 1, 2, 80},
		"it bears a few":     {6, 3, 7, 80},
		"it bears many":      {30, 15, 31, 200},
		"it bears all of it": {mostAtOnce, mostAtOnce, mostAtOnce, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLink(quiet)
				var busy, done, peak atomic.Int64
				var all errgroup.Group
				all.SetLimit(mostAtOnce)
				const writes = 20_000
				for range writes {
					all.Go(func() error {
						return l.write(t.Context(), func(context.Context) error {
							defer busy.Add(-1)
							now := busy.Add(1)
							peak.Store(max(peak.Load(), now))
							if now > test.bears {
								<-time.After(2 * time.Second)
								return core.Errorf(core.CodeUnknown, "the write timed out")
							}
							<-time.After(10 * time.Millisecond)
							done.Add(1)
							return nil
						})
					})
				}
				if err := all.Wait(); err != nil {
					t.Fatal(err)
				}
				limit, again := l.mu.limit, l.mu.progress.Again
				if done.Load() != writes || limit < test.least || limit > test.most || again > test.again || peak.Load() > test.bears+8 {
					t.Errorf("%d writes of %d, limit %d, %d tried again, at most %d at once", done.Load(), writes, limit, again, peak.Load())
				}
			})
		})
	}
}

// TestLink_EndsWaiting: a write that fails for good ends those that wait for their turn.
func TestLink_EndsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLink(quiet)
		all, ctx := errgroup.WithContext(t.Context())
		for range mostAtOnce {
			all.Go(func() error {
				return l.write(ctx, func(ctx context.Context) error {
					select {
					case <-time.After(time.Second):
						return core.Errorf(core.CodeTooLarge, "a row is too large")
					case <-ctx.Done():
						return core.Errorf(core.CodeUnknown, "the write was ended: %w", context.Cause(ctx))
					}
				})
			})
		}
		wantCode(t, "the first error", all.Wait(), core.CodeTooLarge, "too large")
		if l.mu.busy != 0 {
			t.Errorf("%d writes are under way", l.mu.busy)
		}
	})
}
