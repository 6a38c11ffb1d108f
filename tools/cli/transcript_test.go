package cli

import (
	"bytes"
	"context"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// transcript runs the command lines of a file in testdata, one after another, and compares what a user would see, with
// the exit codes; -rewrite accepts what is seen. Words in quotes, and the quoted text below a line, which is its
// standard input, are Go's.
func transcript(t *testing.T, addr, name string) {
	t.Helper()
	datadriven.RunTest(t, filepath.Join("testdata", name), func(t *testing.T, d *datadriven.TestData) string {
		args := make([]string, len(d.CmdArgs))
		for i, a := range d.CmdArgs {
			args[i] = unquoted(t, d, a.String())
		}
		stdout, stderr, code := runCLI(addr, args, unquoted(t, d, d.Input))
		return seen(strings.ReplaceAll(stdout, addr, "ADDR"), strings.ReplaceAll(stderr, addr, "ADDR"), code)
	})
}

func unquoted(t *testing.T, d *datadriven.TestData, s string) string {
	if !strings.HasPrefix(s, `"`) {
		return s
	}
	text, err := strconv.Unquote(s)
	if err != nil {
		d.Fatalf(t, "%s: %v", s, err)
	}
	return text
}

// runCLI runs one command line in this process against a server.
func runCLI(addr string, args []string, stdin string) (stdout, stderr string, code int) {
	var out, talk bytes.Buffer
	code = Main(context.Background(), args, strings.NewReader(stdin), &out, &talk, []string{"COLUMBA_ADDR=" + addr})
	return out.String(), talk.String(), code
}

// run has lines done whose results do not matter.
func run(addr string, lines ...string) {
	for _, line := range lines {
		runCLI(addr, strings.Fields(line), "")
	}
}

func TestTranscripts(t *testing.T) {
	for _, name := range []string{"queues.txt", "groups.txt", "inside.txt", "audit.txt", "namespaces.txt", "operations.txt", "purge.txt", "tokens.txt", "usage.txt"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, addr := newFakeServer(t)
			transcript(t, addr, name)
		})
	}
}
