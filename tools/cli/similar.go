package cli

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// similarFlag is "did you mean --this? See" for a flag that cmd does not have but that is close to one it has; else "see".
func similarFlag(cmd *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return "see"
	}
	name := unknown.GetSpecifiedName()
	if len(name) > 64 {
		return "see"
	}
	near, least := "", 1+min(2, len(name)/3)
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		d := distance(name, f.Name)
		if len(name) > 1 && strings.HasPrefix(f.Name, name) {
			d = 0
		}
		if d < least && !f.Hidden {
			near, least = f.Name, d
		}
	})
	if near == "" {
		return "see"
	}
	return "did you mean --" + near + "? See"
}

// distance is how many bytes must be put in, left out or replaced to make b of a.
func distance(a, b string) int {
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
