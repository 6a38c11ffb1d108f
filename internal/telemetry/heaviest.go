package telemetry

import (
	"cmp"
	"slices"
)

// MostSeries is how many queues or groups have series of their own by default. Metrics with a series for each queue or
// group have their number bounded by Heaviest, and say the rest in sums under the label value Rest.
const MostSeries = 1000

// Rest is the value of the labels queue and group of the series that sum up what has no series of its own. No path and
// no group name is like it.
const Rest = "(rest)"

// Heaviest reorders items so that the most heaviest ones come first, and returns these and the rest. Neither part is
// sorted. Of equal weight the one whose name is less comes first, so two calls with the same items choose the same.
// Weight and name are called once for each item; most below 0 counts as 0.
//
// A gauge of the rest is the sum, or the maximum, over the rest. A counter must not fall when an item gains a series of
// its own: add to the counter of the rest only what the items of the rest grew by since the last scrape (see Grown).
func Heaviest[T any](items []T, most int, weight func(T) float64, name func(T) string) (first, rest []T) {
	most = min(max(most, 0), len(items))
	if most == len(items) || most == 0 {
		return items[:most:most], items[most:]
	}
	type weighed struct {
		item   T
		weight float64
		name   string
	}
	all := make([]weighed, len(items))
	for i, it := range items {
		all[i] = weighed{it, weight(it), name(it)}
	}
	slices.SortFunc(all, func(a, b weighed) int { return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.name, b.name)) })
	for i := range all {
		items[i] = all[i].item
	}
	return items[:most:most], items[most:]
}

// Grown is a counter's part of one item: it tells how much the item grew between two scrapes, so that sums over
// changing sets of items never fall. The zero Grown has seen nothing. Not safe for concurrent use.
type Grown struct{ seen uint64 }

// Since returns by how much the item's counter, now at value, grew since the last call. A value below the last one is
// that of a counter that began anew.
func (g *Grown) Since(value uint64) uint64 {
	grown := value
	if value >= g.seen {
		grown = value - g.seen
	}
	g.seen = value
	return grown
}
