package outputhost

import (
	"testing"

	"pgregory.net/rapid"
)

// TestBudget_BoundsAllAndStopsNone has shares read as much as they may, settle some, and read on.
func TestBudget_BoundsAllAndStopsNone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const bound = 16 << 20
		b := budget{bound: bound}
		held := make([]int, rapid.IntRange(1, 40).Draw(t, "shares"))
		set := func(i, to int) {
			b.held.Add(int64(to - held[i]))
			switch {
			case held[i] == 0 && to > 0:
				b.holders.Add(1)
			case held[i] > 0 && to == 0:
				b.holders.Add(-1)
			}
			held[i] = to
		}
		for range 400 {
			i := rapid.IntRange(0, len(held)-1).Draw(t, "share")
			if rapid.Bool().Draw(t, "read") {
				room := b.room(held[i])
				if room < 0 || held[i] < minPart && room < minPart-held[i] {
					t.Fatalf("a share that holds %d may read %d", held[i], room)
				}
				set(i, held[i]+room)
			} else {
				set(i, held[i]/2)
			}
			if most := bound + len(held)*minPart; b.held.Load() > int64(most) {
				t.Fatalf("%d shares hold %d, want at most %d", len(held), b.held.Load(), most)
			}
		}
	})
}

// TestBudget_FairUnderPressure compares a share that holds much with one that comes later.
func TestBudget_FairUnderPressure(t *testing.T) {
	b := budget{bound: 64 << 20}
	b.held.Store(60 << 20)
	b.holders.Store(2)
	if got := b.room(50 << 20); got != 0 {
		t.Errorf("the share above its part may read %d", got)
	}
	if got := b.room(10 << 20); got != 4<<20 {
		t.Errorf("the share below its part may read %d, want what is free", got)
	}
	b.held.Store(64 << 20)
	if got := b.room(0); got != minPart {
		t.Errorf("a new one may read %d, want %d: none stops for good", got, minPart)
	}
}
