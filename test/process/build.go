// Package process owns the programs under test: it builds the binary, starts servers and command lines, and kills them.
package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// Program is the path of the binary that Main built.
var Program string

// Main builds the binary, runs the tests, as testing.M does, and returns their exit code.
func Main(m interface{ Run() int }) int {
	dir, err := os.MkdirTemp("", "columba-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	Program = filepath.Join(dir, "columba")
	if err := Build(Program); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// Build builds the binary with more flags of go build, such as -race.
func Build(to string, flags ...string) error { return BuildPackage(to, "cmd/columba", flags...) }

// BuildPackage is Build of another command of the module. As what is released it is without cgo, which the race
// detector needs.
func BuildPackage(to, pkg string, flags ...string) error {
	args := append([]string{"build", "-o", to}, flags...)
	build := exec.Command("go", append(args, "github.com/columbamq/columba/"+pkg)...)
	if !slices.Contains(flags, "-race") {
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return nil
}
