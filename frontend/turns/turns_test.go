package turns

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

var g, other = Of{"/t/a", "g", "host:1"}, Of{"/t/a", "g", "host:2"}

func TestTurnsComeInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := New(2)
		for range 2 {
			if !turns.Begin(t.Context(), g) {
				t.Fatal("a turn that is free is not given")
			}
		}
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		contexts := make([]context.CancelFunc, 5)
		for i := range contexts {
			ctx, cancel := context.WithCancel(t.Context())
			contexts[i] = cancel
			wg.Go(func() {
				if !turns.Begin(ctx, g) {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
			})
			synctest.Wait()
		}
		if !turns.Begin(t.Context(), other) {
			t.Fatal("another owner has no turn of its own")
		}
		contexts[1]()
		synctest.Wait()
		for range 4 {
			turns.End(g)
			synctest.Wait()
		}
		wg.Wait()
		if want := []int{0, 2, 3, 4}; !slices.Equal(order, want) {
			t.Errorf("turns came in the order %v, want %v", order, want)
		}
		for range 2 {
			turns.End(g)
		}
		turns.End(other)
		for _, cancel := range contexts {
			cancel()
		}
		if n := len(turns.mu.lines); n != 0 {
			t.Errorf("%d lines without pulls are kept", n)
		}
	})
}

// TestTurnIsNotLost ends waits at the moment at which their turn comes.
func TestTurnIsNotLost(t *testing.T) {
	for range 1000 {
		turns := New(1)
		turns.Begin(t.Context(), g)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if turns.Begin(ctx, g) {
					turns.End(g)
				}
			})
		}
		wg.Go(cancel)
		turns.End(g)
		wg.Wait()
		if n := len(turns.mu.lines); n != 0 {
			t.Fatal("a turn was lost")
		}
	}
}
