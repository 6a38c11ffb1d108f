package quota

import (
	"cmp"
	"slices"
)

// floor is the part of an equal share that a host gets which needs nothing: who begins to publish there must not wait
// for the next round.
const floor = 1.0 / 20

// Split shares a budget by what each needs: nobody gets more than it needs before all have that, and what is left is
// spread evenly. The shares are in the order of the needs; their sum is the budget.
func Split(budget float64, needs []float64) []float64 {
	n := len(needs)
	if n == 0 {
		return nil
	}
	least := budget / float64(n) * floor
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(needs[a], needs[b]) })
	out, left := make([]float64, n), budget
	for k, i := range order {
		out[i] = min(max(needs[i], least), left/float64(n-k))
		left -= out[i]
	}
	for i := range out {
		out[i] += left / float64(n)
	}
	return out
}

// Alone is what a host may use that does not hear from who shares the budget out, with so many hosts as it last heard
// of: a tenth of an equal part. It may come on top of what others hold.
func Alone(budget float64, hosts int) float64 { return budget / float64(max(hosts, 1)) / 10 }
