package cli

import (
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// helpColumns is how long a line of a command's description is at most.
const helpColumns = 120

// wrapHelp wraps the descriptions of a command and of those below it.
func wrapHelp(cmd *cobra.Command) {
	cmd.Long = wrapped(cmd.Long)
	for _, sub := range cmd.Commands() {
		wrapHelp(sub)
	}
}

// wrapped joins the lines of each paragraph and breaks them at helpColumns. Lines that begin with a space are examples
// and stay as they are.
func wrapped(text string) string {
	var out, paragraph []string
	flush := func() {
		line := ""
		for _, word := range paragraph {
			switch {
			case line == "":
				line = word
			case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= helpColumns:
				line += " " + word
			default:
				out = append(out, line)
				line = word
			}
		}
		if line != "" {
			out = append(out, line)
		}
		paragraph = nil
	}
	for line := range strings.SplitSeq(text, "\n") {
		if line == "" || line[0] == ' ' {
			flush()
			out = append(out, line)
			continue
		}
		paragraph = append(paragraph, strings.Fields(line)...)
	}
	flush()
	return strings.Join(out, "\n")
}
