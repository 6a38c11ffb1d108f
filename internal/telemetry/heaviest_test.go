package telemetry

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

type series struct {
	name   string
	weight float64
}

func heaviest(items []series, most int) (first, rest []series) {
	return Heaviest(items, most, func(s series) float64 { return s.weight }, func(s series) string { return s.name })
}

func names(items []series) (out []string) {
	for _, s := range items {
		out = append(out, s.name)
	}
	slices.Sort(out)
	return out
}

func TestHeaviest(t *testing.T) {
	items := []series{{"e", 0}, {"a", 1}, {"d", 3}, {"c", 1}, {"b", 1}}
	for most, want := range map[int][]string{-1: nil, 0: nil, 1: {"d"}, 2: {"a", "d"}, 3: {"a", "b", "d"}, 5: {"a", "b", "c", "d", "e"}, 9: {"a", "b", "c", "d", "e"}} {
		for range 10 {
			all := slices.Clone(items)
			rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			first, rest := heaviest(all, most)
			if got := names(first); !slices.Equal(got, want) {
				t.Fatalf("the first %d: got %v, want %v", most, got, want)
			}
			if len(first)+len(rest) != len(items) {
				t.Fatalf("the first %d: got %d and %d items, want %d together", most, len(first), len(rest), len(items))
			}
		}
	}
}

// Appending to the first part must not overwrite the rest.
func TestHeaviest_PartsAreApart(t *testing.T) {
	first, rest := heaviest([]series{{"a", 1}, {"b", 0}}, 1)
	_ = append(first, series{"x", 9})
	if rest[0].name != "b" {
		t.Fatalf("the rest is %v after an append to the first part, want b", rest)
	}
}

// A sum over a set that items leave and join never falls, and counts everything once.
func TestGrown(t *testing.T) {
	var g Grown
	for i, tc := range []struct{ value, want uint64 }{{5, 5}, {5, 0}, {7, 2}, {3, 3}, {4, 1}} {
		if got := g.Since(tc.value); got != tc.want {
			t.Errorf("scrape %d at %d: got %d, want %d", i, tc.value, got, tc.want)
		}
	}
}

func BenchmarkHeaviest(b *testing.B) {
	items := make([]series, 14_500)
	for i := range items {
		items[i] = series{fmt.Sprintf("/tenant/queue%d", i), float64(i % 100)}
	}
	for b.Loop() {
		heaviest(items, MostSeries)
	}
}
