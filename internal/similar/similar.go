// Package similar guesses the known name that was meant by an unknown one.
package similar

import "strings"

// longest is the length in bytes of a name that is worth a guess.
const longest = 64

// To is the name of names that name was likely meant to be; "" when none is close.
func To(name string, names []string) string {
	if len(name) > longest {
		return ""
	}
	near, least := "", 1+min(2, len(name)/3)
	for _, n := range names {
		d := Distance(name, n)
		if len(name) > 1 && strings.HasPrefix(n, name) {
			d = 0
		}
		if d < least {
			near, least = n, d
		}
	}
	return near
}

// Distance is how many bytes must be put in, left out or replaced to make b of a.
func Distance(a, b string) int {
	row := make([]int, len(b)+1) // of the a[:i] before: row[j] is the distance to b[:j]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := before
			if a[i] != b[j] {
				replaced++
			}
			before = row[j+1]
			row[j+1] = min(replaced, row[j]+1, before+1)
		}
	}
	return row[len(b)]
}
