package client

import (
	"flag"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite deps.txt")

// deps.txt is every package outside of the standard library that the client brings into its users' builds. A new line
// in it needs a reason; a server's libraries (pebble, gocql, serf, cobra, prometheus) have none.
func TestDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	lines := strings.Fields(string(out))
	slices.Sort(lines)
	got := strings.Join(lines, "\n") + "\n"
	if *update {
		if err := os.WriteFile("deps.txt", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("deps.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("dependencies changed (-deps.txt +now); if that is meant: go test ./client -run Dependencies -update\n%s", diff)
	}
	for _, banned := range []string{"pebble", "gocql", "serf", "cobra", "prometheus", "opentelemetry.io/otel/sdk"} {
		if strings.Contains(got, banned) {
			t.Errorf("the client depends on %s", banned)
		}
	}
}
