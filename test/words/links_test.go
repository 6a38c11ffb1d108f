package words

import (
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
)

// anchors are the targets within a Markdown page: one for each heading, as GitHub names them.
func anchors(page string) (out []string) {
	code := false
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "```") {
			code = !code
		}
		if title := strings.TrimLeft(line, "#"); !code && title != line && strings.HasPrefix(title, " ") {
			title = link.ReplaceAllString(strings.TrimSpace(title), "]")
			out = append(out, strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(title), ""), " ", "-"))
		}
	}
	return out
}

// deadLinks are the links of a page, named by its path below the root, that lead to no file or to no heading.
func deadLinks(t *testing.T, file, page string) (out []string) {
	for _, m := range link.FindAllStringSubmatch(page, -1) {
		if strings.Contains(m[1], "://") {
			continue
		}
		name, anchor, _ := strings.Cut(m[1], "#")
		text := page
		if name != "" {
			target := path.Join(path.Dir(file), name)
			if _, err := os.Stat(root + target); err != nil {
				out = append(out, m[1])
				continue
			}
			if anchor != "" {
				text = read(t, target)
			}
		}
		if anchor != "" && !slices.Contains(anchors(text), anchor) {
			out = append(out, m[1])
		}
	}
	return out
}

// TestLinks_LeadSomewhere: every link between pages has a file, and a heading of it when it names one.
func TestLinks_LeadSomewhere(t *testing.T) {
	for _, f := range files(t, "*.md", "docs/*.md", "docs/*/*.md", "bench/*.md") {
		for _, l := range deadLinks(t, f, read(t, f)) {
			t.Errorf("%s: the link %s leads nowhere", f, l)
		}
	}
	made := "# One `two`: three\n[a](#one-two-three) [b](#four) [c](words_test.go) [d](gone.md) [e](https://x.org/#y)\n"
	if got := deadLinks(t, "test/words/made.md", made); !slices.Equal(got, []string{"#four", "gone.md"}) {
		t.Errorf("dead links of a made-up page are %v", got)
	}
}
