package verify

import (
	"fmt"
	"strings"
)

// listed is how many findings of a kind String shows; the rest are counted.
const listed = 5

// String is the report for people: a line per group, then what is wrong.
func (r *Report) String() string {
	var b strings.Builder
	for _, c := range r.Counts {
		fmt.Fprintf(&b, "%s %s: %d messages received, %d acknowledged, %d dead, %d retries, %d duplicates\n",
			c.Queue, c.Group, c.Received, c.Acked, c.Dead, c.Retries, c.Duplicates)
	}
	kinds := make(map[Kind]int)
	for _, f := range r.Findings {
		if kinds[f.Kind]++; kinds[f.Kind] <= listed {
			fmt.Fprintln(&b, f)
		}
	}
	for kind, n := range kinds {
		if n > listed {
			fmt.Fprintf(&b, "%s: %d in all\n", kind, n)
		}
	}
	if r.OK() {
		b.WriteString("nothing is wrong\n")
	}
	return b.String()
}
