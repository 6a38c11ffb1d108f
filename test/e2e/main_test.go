// Package e2e tests the built binary: the command line against a real server process.
package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/columbamq/columba/test/process"
)

// binary is the columba that TestMain built.
var binary string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "columba-e2e")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "columba")
	if err := process.Build(binary); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
