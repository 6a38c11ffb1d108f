package node

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// runningDoc has a row for every setting: | `--name` | `default` | …
const runningDoc = "../docs/operations/running.md"

func TestRunningDocHasEverySetting(t *testing.T) {
	text, err := os.ReadFile(runningDoc)
	if err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	RegisterFlags(flags)
	known := make(map[string]bool)
	flags.VisitAll(func(f *pflag.Flag) {
		known[f.Name] = true
		row := "| `--" + f.Name + "` | "
		if f.DefValue != "" {
			row += "`" + f.DefValue + "` | "
		}
		if !strings.Contains(string(text), row) {
			t.Errorf("%s has no row that begins with %q", runningDoc, row)
		}
	})
	for line := range strings.Lines(string(text)) {
		if name, isFlag := strings.CutPrefix(line, "| `--"); isFlag {
			if name, _, _ = strings.Cut(name, "`"); !known[name] {
				t.Errorf("%s describes --%s, which is no flag", runningDoc, name)
			}
		}
	}
}
