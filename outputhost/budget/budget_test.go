package budget

import (
	"testing"

	"pgregory.net/rapid"
)

// TestBudget_BoundsAllAndStopsNone has shares read as much as they may, settle some, and read on.
func TestBudget_BoundsAllAndStopsNone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const bound = 16 << 20
		b := New(bound)
		held := make([]int, rapid.IntRange(1, 40).Draw(t, "shares"))
		set := func(i, to int) {
			b.Count(held[i], to)
			held[i] = to
		}
		for range 400 {
			i := rapid.IntRange(0, len(held)-1).Draw(t, "share")
			if rapid.Bool().Draw(t, "read") {
				room := b.Room(held[i])
				if room < 0 || held[i] < MinPart && room < MinPart-held[i] {
					t.Fatalf("a share that holds %d may read %d", held[i], room)
				}
				set(i, held[i]+room)
			} else {
				set(i, held[i]/2)
			}
			if most := bound + len(held)*MinPart; b.Held() > int64(most) {
				t.Fatalf("%d shares hold %d, want at most %d", len(held), b.Held(), most)
			}
		}
	})
}

// TestBudget_FairUnderPressure compares a share that holds much with one that comes later.
func TestBudget_FairUnderPressure(t *testing.T) {
	b := New(64 << 20)
	b.Count(0, 50<<20)
	b.Count(0, 10<<20)
	if got := b.Room(50 << 20); got != 0 {
		t.Errorf("the share above its part may read %d", got)
	}
	if got := b.Room(10 << 20); got != 4<<20 {
		t.Errorf("the share below its part may read %d, want what is free", got)
	}
	b.Count(10<<20, 14<<20)
	if got := b.Room(0); got != MinPart {
		t.Errorf("a new one may read %d, want %d: none stops for good", got, MinPart)
	}
}
