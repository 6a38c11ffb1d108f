package words

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// wrapAt is how many columns a line of prose has at most.
const wrapAt = 120

var listItem = regexp.MustCompile(`^\s*([*+-]|\d+\.) `)

// longProse are the numbers of the lines of a Markdown page that are longer than prose may be. Tables, code, headings
// and lines that cannot be broken are no prose.
func longProse(page string) (out []int) {
	code, number := false, 0
	for line := range strings.Lines(page) {
		number++
		line = strings.TrimRight(line, "\n")
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "```") {
			code = !code
			continue
		}
		text := listItem.ReplaceAllString(line, "")
		switch {
		case code, strings.HasPrefix(trimmed, "|"), strings.HasPrefix(line, "#"), strings.HasPrefix(line, "    "), strings.HasPrefix(line, "<"):
		case utf8.RuneCountInString(line) > wrapAt && strings.Contains(strings.TrimSpace(text), " "):
			out = append(out, number)
		}
	}
	return out
}

// longComments are the numbers of the lines of Go source that are comments, and longer than prose may be.
func longComments(source string) (out []int) {
	number := 0
	for line := range strings.Lines(source) {
		number++
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "// ") && !strings.HasPrefix(trimmed, "//  ") && utf8.RuneCountInString(strings.TrimRight(line, "\n")) > wrapAt {
			out = append(out, number)
		}
	}
	return out
}

// TestProse_Wraps: pages and comments are wrapped, but for the results of benchmarks, which programs write.
func TestProse_Wraps(t *testing.T) {
	checked := 0
	everyFile(t, func(path string) {
		var long []int
		switch {
		case strings.HasPrefix(path, "bench/results/"):
			return
		case strings.HasSuffix(path, ".md"):
			long = longProse(read(t, path))
		case isSource(path):
			long = longComments(read(t, path))
		default:
			return
		}
		checked++
		for _, n := range long {
			t.Errorf("%s:%d is longer than %d columns", path, n, wrapAt)
		}
	})
	if checked < 1000 {
		t.Errorf("%d files", checked)
	}

	t.Run("made-up texts", func(t *testing.T) {
		long := strings.Repeat("word ", 30)
		page := fmt.Sprintf("# %[1]s\n| %[1]s |\n```\n%[1]s\n```\n%[1]s\n* %[1]s\n%s\n", long, strings.Repeat("x", 200))
		if got := longProse(page); !slices.Equal(got, []int{6, 7}) {
			t.Errorf("long lines of the page are %v", got)
		}
		source := fmt.Sprintf("// %[1]s\nvar x = 1 // %[1]s\n\t// short\n", long)
		if got := longComments(source); !slices.Equal(got, []int{1}) {
			t.Errorf("long comments are %v", got)
		}
	})
}
