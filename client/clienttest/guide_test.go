package clienttest_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/columbamq/columba/client"
)

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

// TestGuide_CodeIsTested finds each piece of Go of the user guide in the tests of this package, so that it is compiled
// and run.
func TestGuide_CodeIsTested(t *testing.T) {
	var tests strings.Builder
	for _, name := range glob(t, "guide*_test.go") {
		tests.WriteString(flat(t, read(t, name)))
	}
	pages := glob(t, "../../docs/guide/*.md")
	if len(pages) < 8 {
		t.Fatalf("%d pages of the guide", len(pages))
	}
	for _, page := range pages {
		for _, m := range goBlock.FindAllStringSubmatch(read(t, page), -1) {
			if !strings.Contains(tests.String(), flat(t, m[1])) {
				t.Errorf("%s: this is not in the guide*_test.go of client/clienttest:\n%s", page, m[1])
			}
		}
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	ok(t, err)
	return names
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	ok(t, err)
	return string(text)
}

// flat is code without its indentation.
func flat(t *testing.T, code string) string {
	t.Helper()
	var out strings.Builder
	for line := range strings.Lines(code) {
		out.WriteString(strings.TrimLeft(line, "\t"))
	}
	return out.String()
}

// surroundings are those of the guide's code. Nothing listens there when tests run.
func surroundings(ctx context.Context) error {
	c, err := client.Dial(ctx, "127.0.0.1:4922")
	if err != nil {
		return err
	}
	defer c.Close()
	return nil
}

var _ = surroundings
