package cli

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// TestHelp_DescriptionsFitTheColumns has no command describe itself in lines that a terminal breaks.
func TestHelp_DescriptionsFitTheColumns(t *testing.T) {
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		for line := range strings.SplitSeq(cmd.Long, "\n") {
			if n := utf8.RuneCountInString(line); n > helpColumns && line[0] != ' ' {
				t.Errorf("%s --help: %d columns: %s", cmd.CommandPath(), n, line)
			}
		}
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check((&app{}).root())
}
