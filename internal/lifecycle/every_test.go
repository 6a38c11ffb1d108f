package lifecycle

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestEvery: rounds are a period apart; of the ticks that a long one misses, one is made up for. Every returns when the
// context ends.
func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		var at []time.Duration
		Every(ctx, 10*time.Second, func(context.Context) {
			at = append(at, time.Since(began))
			switch len(at) {
			case 2:
				time.Sleep(35 * time.Second)
			case 5:
				cancel()
			}
		})
		want := []time.Duration{10 * time.Second, 20 * time.Second, 55 * time.Second, 60 * time.Second, 70 * time.Second}
		if !slices.Equal(at, want) {
			t.Errorf("rounds at %v, want %v", at, want)
		}
	})
}
